// Strangers: which peers of the control channel have been warned about, so that each is only once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <set>
#include <string>

namespace plimsoll {

class Strangers {
 public:
  static constexpr std::size_t kPeersMax = 256;

  // One of our own processes: what it has still sent when it is gone already is no news.
  void acquaint(const std::string& peer) {
    own_.push_back(peer);
    if (own_.size() > kPeersMax) own_.pop_front();
  }
  // Whether a peer that nobody knows is worth a line. Past the bound none is any more.
  bool is_news(const std::string& peer) {
    if (std::find(own_.begin(), own_.end(), peer) != own_.end()) return false;
    return warned_.size() < kPeersMax && warned_.insert(peer).second;
  }

 private:
  std::deque<std::string> own_;
  std::set<std::string> warned_;
};

}  // namespace plimsoll
