"""A request's tokens and logprob bits do not depend on what else runs, on chunking or on preemption."""
import concurrent.futures
import tempfile
import unittest

from deployment import Deployment, SystemTest, tiny_model

WORDS = "the ship carries a load line that says how much is safe in summer winter fresh and salt water ".split()


def requests():
    """16 requests of different lengths and samplings, the same in every run."""
    out = []
    for i in range(16):
        length = 2 + (i * 37) % 60
        prompt = f"{i}: " + " ".join(WORDS[(i * 7 + j * (i % 3 + 1)) % len(WORDS)] for j in range(length))
        out.append({"prompt": prompt, "max_tokens": 4 + (i * 5) % 30, "logprobs": 3, "ignore_eos": True,
                    "temperature": 0 if i % 2 else 0.9, "seed": 1000 + i, "top_p": 0.9 if i % 4 == 0 else 1.0})
    return out


def result(server, fields):
    choice = server.completion(**fields)["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]


def together(server, batch):
    with concurrent.futures.ThreadPoolExecutor(len(batch)) as pool:
        return list(pool.map(lambda fields: result(server, fields), batch))


class Invariance(SystemTest):
    def compare(self, model, *variants):
        batch = requests()
        with Deployment(model, "--max-running-requests", 16) as server:
            alone = [result(server, fields) for fields in batch]
            self.assertEqual(alone, together(server, batch), "together differs from alone")
        for variant in variants:
            with Deployment(model, *variant) as server:
                self.assertEqual(alone, together(server, batch), f"{variant} differs")

    # By name, what differs from the first deployment. With KV for about three of the longest requests the
    # scheduler must preempt and recompute.
    VARIANTS = [("--chunked-prefill-size", 48, "--threads", 2),
                ("--max-total-tokens", 768, "--context-length", 512)]

    def test_sixteen_clients_get_the_bits_that_they_get_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model(folder, seed=5)
            self.compare(model, *self.VARIANTS)
            self.compare_ranks(model)

    def compare_ranks(self, model):
        """Two ranks sum in another order than one, so their bits are compared among themselves."""
        batch = requests()
        with Deployment(model, "--tp", 2, "--max-running-requests", 16) as server:
            self.assertEqual([result(server, fields) for fields in batch], together(server, batch))


if __name__ == "__main__":
    unittest.main()
