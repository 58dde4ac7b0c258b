"""Gemma 3 270M (Q4_K_M, a base model) through the product: text, logprobs, NLL, plan and memory."""
import unittest

from deployment import CACHE, Deployment, SystemTest, off_plan
from smollm2_serve_test import PARAGRAPH

GEMMA = CACHE / "models/gemma-3-270m-q4_k_m.gguf"
# Of an independent run with f32 activations: "The capital of France is", best tokens and their
# logits, the twelve tokens that follow greedily.
PROMPT = [2, 818, 5279, 529, 7001, 563]
TOP = {506: 19.0915, 496: 18.5476, 9079: 18.2686, 886: 18.1130, 3224: 17.7839}
PARAGRAPH_NLL = 1.7438  # tools/make_logit_goldens --nll: transformers in float32
GREEDY = [506, 5279, 529, 506, 2891, 529, 7001, 236761, 1030, 563, 506, 7488]


def nll(server):
    answer = server.completion(PARAGRAPH, max_tokens=0, echo=True, logprobs=0)
    values = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert values[0] is None, values[0]
    return -sum(values[1:]) / (len(values) - 1)


class Gemma(SystemTest):
    activations = "int8"
    server = None

    @classmethod
    def setUpClass(cls):
        cls.server = None

    def setUp(self):
        if not GEMMA.exists():
            self.skipTest(f"{GEMMA} is absent: run tools/fetch-test-data to fetch it")
        if type(self).server is None:
            flags = ["--activations", self.activations, "--context-length", 2048]
            type(self).server = Deployment(GEMMA, "--served-model-name", "gemma", *flags).start()

    @classmethod
    def tearDownClass(cls):
        if cls.server:
            cls.server.stop()

    def text_of(self, ids):
        _, answer, _ = self.server.request("POST", "/detokenize", {"tokens": ids})
        return answer.get("prompt", answer.get("content"))


class Reference(Gemma):
    activations = "f32"

    def test_greedy_text_and_the_best_logprobs_are_the_golden_ones(self):
        answer = self.server.completion(PROMPT, max_tokens=12, temperature=0, logprobs=5)
        choice = answer["choices"][0]
        self.assertEqual(choice["text"], self.text_of(GREEDY))
        best = choice["logprobs"]["top_logprobs"][0]
        expected = {self.text_of([token]): logit for token, logit in TOP.items()}
        self.assertEqual(set(best), set(expected))
        first = self.text_of([506])
        for name, logit in expected.items():
            self.assertAlmostEqual(best[name] - best[first], logit - TOP[506], delta=2e-3, msg=name)

    def test_the_paragraph_has_the_golden_nll(self):
        self.assertAlmostEqual(nll(self.server), PARAGRAPH_NLL, delta=0.001)


class Fast(Gemma):
    def test_greedy_text_begins_like_the_golden_one(self):
        answer = self.server.completion(PROMPT, max_tokens=12, temperature=0, logprobs=1)
        self.assertTrue(answer["choices"][0]["text"].startswith(self.text_of(GREEDY[:5])), answer)

    def test_the_paragraph_has_the_golden_nll(self):
        self.assertAlmostEqual(nll(self.server), PARAGRAPH_NLL, delta=0.02)

    def test_a_base_model_has_no_chat_template_and_says_so(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        status, answer, _ = self.server.request("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 400)
        self.assertIn("chat template", answer["error"]["message"])

    def test_a_prompt_past_the_window_is_answered_the_same_from_the_prefix_cache(self):
        prompt = PARAGRAPH * 10  # some 670 tokens; the window has 512
        first = self.server.completion(prompt, max_tokens=16, temperature=0, ignore_eos=True)
        again = self.server.completion(prompt, max_tokens=16, temperature=0, ignore_eos=True)
        self.assertEqual(first["choices"][0]["text"], again["choices"][0]["text"])
        self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 600)

    def test_nothing_takes_more_memory_than_planned(self):
        self.server.completion(PARAGRAPH, max_tokens=4)
        rank = self.server.status()["replicas"][0]["ranks"][0]
        self.assertLessEqual(sum(rank["measured"].values()), rank["memory_bytes"], rank)


class TensorParallel(SystemTest):
    def test_answers_are_equal_over_tp_and_the_plan_is_within_two_percent_of_each_rank(self):
        if not GEMMA.exists():
            self.skipTest(f"{GEMMA} is absent: run tools/fetch-test-data to fetch it")
        values = {}
        for tp in (1, 2, 3):
            with Deployment(GEMMA, "--tp", tp, "--context-length", 1024) as server:
                text = server.completion("Once upon a time", max_tokens=32, temperature=0, ignore_eos=True)
                values[tp] = (nll(server), text["choices"][0]["text"])
                for rank in server.workers():
                    memory = rank["memory"]
                    self.assertLess(off_plan(memory), 0.02 * memory["planned"], (tp, rank))
                self.assertEqual(server.status()["drift"], [])
        self.assertEqual(values[1], values[2])
        self.assertEqual(values[1], values[3])


if __name__ == "__main__":
    unittest.main()
