"""Packed weights outlive their worker, and replicas share them: seen in what the kernel says that processes map."""
import os
import pathlib
import signal
import tempfile
import unittest

from deployment import Deployment, SystemTest, keeps_weights, maps_of_weights, tiny_model, wait_until


def held_by(pid):
    """The weights whose descriptors a process has open."""
    found = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(entry)
        except OSError:
            continue
        if "plimsoll-weights-" in name:
            found.add(name)
    return found


@unittest.skipUnless(keeps_weights(), "the kernel has no 2 MiB pages for a memfd (Linux below 6.1)")
class Weights(SystemTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = tiny_model(self.folder.name)

    def ranks(self, server):
        return {(number, rank["rank"]): rank["pid"]
                for number, replica in enumerate(server.status()["replicas"]) for rank in replica["ranks"]}

    def test_replicas_share_and_a_rank_that_starts_again_maps_the_same(self):
        with Deployment(self.model, "--tp", 2, "--dp", 2) as server:
            ranks = self.ranks(server)
            first = {rank: maps_of_weights(ranks[0, rank]) for rank in (0, 1)}
            self.assertEqual([len(maps) for maps in first.values()], [1, 1])
            self.assertNotEqual(first[0], first[1])
            for rank in (0, 1):
                self.assertEqual(maps_of_weights(ranks[1, rank]), first[rank], "replicas map other memory")
            before = server.completion("The sea", max_tokens=20, temperature=0, ignore_eos=True)["choices"]
            os.kill(ranks[0, 1], signal.SIGKILL)

            def are_others():
                now = self.ranks(server)
                is_new = all(now[0, rank] and now[0, rank] != ranks[0, rank] for rank in (0, 1))
                return now if is_new and all(rank["state"] == "ready" for rank in server.workers()) else None

            again = wait_until("both ranks of the replica are others", are_others, 30)
            for rank in (0, 1):
                self.assertEqual(maps_of_weights(again[0, rank]), first[rank], "the new rank packed anew")
            after = server.completion("The sea", max_tokens=20, temperature=0, ignore_eos=True)["choices"]
            self.assertEqual(after, before)

    def test_another_model_is_packed_anew_and_a_stop_gives_all_back(self):
        other = tiny_model(self.folder.name, seed=5)
        with Deployment(self.model) as server:
            first = maps_of_weights(self.ranks(server)[0, 0])
            self.assertEqual(len(held_by(server.daemon.pid)), 1)
            self.assertEqual(server.cli("reconfigure", f"model={other}", seconds=60).returncode, 0)
            server.wait_serving()
            second = maps_of_weights(self.ranks(server)[0, 0])
            self.assertEqual(len(second), 1)
            self.assertNotEqual(second, first)
            self.assertEqual(len(held_by(server.daemon.pid)), 1, "the old ones are kept")
            self.assertEqual(server.cli("stop", seconds=60).returncode, 0)
            self.assertEqual(held_by(server.daemon.pid), set())
            self.assertEqual(server.cli("start", "--model", other, seconds=60).returncode, 0)
            server.wait_serving()


if __name__ == "__main__":
    unittest.main()
