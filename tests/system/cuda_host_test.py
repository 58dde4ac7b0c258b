"""The CUDA backend, its kernels run by the CPU, serves a model through daemon and router."""
import concurrent.futures
import tempfile
import unittest

from deployment import SLOW, Deployment, SystemTest, tiny_model

PROMPTS = ["the ship carries a load line", "salt water", "says how much is safe in summer and in winter, fresh and"]
# In logprobs: inputs of matrices are rounded to int8, and sums in another order may tie differently, as they do
# between instruction sets of the CPU.
TOLERANCE = 0.2


def answers(server, prompts=PROMPTS):
    def ask(prompt):
        choice = server.completion(prompt=prompt, max_tokens=8, temperature=0, logprobs=1,
                                   ignore_eos=True)["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))


def drawn(server, logprobs):
    """What is asked for with logprobs is drawn on the host, the rest by a kernel behind the recorded step."""
    options = {"logprobs": 1} if logprobs else {}
    return [server.completion(prompt=PROMPTS[0], max_tokens=8, seed=seed, ignore_eos=True,
                              **{"temperature": 0.9, **way, **options})["choices"][0]["text"]
            for seed, way in enumerate(({}, {"top_p": 0.8}, {"top_k": 20}, {"min_p": 0.05}, {"temperature": 0}))]


class CudaHost(SystemTest):
    def test_it_answers_as_the_cpu_does(self):
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("Q4_1", "F16") if SLOW == 1 else ("Q4_1",):
                model = tiny_model(folder, seed=5, type=kind)
                small = ("--context-length", 256, "--max-running-requests", 4, "--chunked-prefill-size", 32)
                if SLOW > 1:  # warming up and recording take sanitizers long; tests/worker has them
                    small += ("--cuda-graph-max-bs", 0)
                with Deployment(model, *small, "--cpu-path", "scalar") as server:
                    want = answers(server)
                with Deployment(model, *small, "--devices", "cuda:host") as server:
                    got = answers(server)
                    self.assertEqual(got, answers(server), "a request has other bits the second time")
                    self.assertIn("cuda on the host executor", str(server.status()))
                    if kind == "Q4_1":
                        self.assertEqual(drawn(server, logprobs=False), drawn(server, logprobs=True))
                for (want_text, want_values), (text, values) in zip(want, got):
                    self.assertEqual(text, want_text, kind)
                    for a, b in zip(values, want_values):
                        self.assertAlmostEqual(a, b, delta=TOLERANCE)

    def test_what_it_cannot_do_is_refused_before_anything_starts(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model(folder, seed=5)
            server = Deployment(model, "--devices", "cuda:host", "--activations", "f32")
            server.launch()
            self.assertEqual(server.daemon.wait(20), 78)
            self.assertIn("CUDA kernels take int8 activations", server.log())
            server.stop(check=True)


if __name__ == "__main__":
    unittest.main()
