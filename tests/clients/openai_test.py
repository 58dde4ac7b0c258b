"""The whole machine through the public `openai` client: two replicas of two ranks, a death, a change, the end."""
import concurrent.futures
import os
import signal
import unittest

from deployment import Deployment, SystemTest, wait_until

import openai

QUESTIONS = [f"Write a short line about the number {i}." for i in range(16)]
STORIES = [f"Write a long story about the number {i}, with many chapters." for i in range(16)]


def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def chat(server, question, max_tokens=32):
    """(text, finish_reason); an error event raises openai.APIError."""
    text, reason = "", None
    stream = client(server).chat.completions.create(
        model="smol", messages=[{"role": "user", "content": question}], max_tokens=max_tokens, temperature=0,
        stream=True)
    for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            reason = chunk.choices[0].finish_reason or reason
    return text, reason


class WholeMachine(SystemTest):
    def test_sixteen_streams_a_killed_worker_a_change_and_a_clean_end(self):
        server = Deployment(self.smollm2(), "--served-model-name", "smol", "--tp", 2, "--dp", 2).start(60)
        try:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(lambda q: chat(server, q), QUESTIONS))
                self.assertTrue(all(text and reason in ("stop", "length") for text, reason in answers), answers)

                # A rank dies under load: no stream ends silently, the service recovers by itself.
                victim = next(rank["pid"] for rank in server.workers() if rank["rank"] == 1)
                running = [pool.submit(chat, server, q, 200) for q in STORIES]
                wait_until("streams run", lambda: server.status()["running"] >= 8, 20)
                os.kill(victim, signal.SIGKILL)
                complete = broken = 0
                for future in running:
                    try:
                        _, reason = future.result()
                        self.assertIn(reason, ("stop", "length"))
                        complete += 1
                    except openai.APIError:
                        broken += 1
                self.assertGreater(complete, 0, "the other replica's streams go on")
                self.assertEqual(complete + broken, 16)
            wait_until("both replicas serve again", lambda: server.status()["state"] == "serving" and all(
                replica["state"] == "ready" for replica in server.status()["replicas"]), 30)
            self.assertNotIn(victim, [rank["pid"] for rank in server.workers()])
            self.assertIn("SIGKILL", str(server.status()["last_fault"]))
            self.assertEqual(chat(server, QUESTIONS[0]), answers[0])

            done = server.cli("reconfigure", "log-level=debug")
            self.assertEqual(done.returncode, 0, done.stderr)
            pids = [rank["pid"] for rank in server.workers()]
            done = server.cli("reconfigure", "tp=1", seconds=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            server.wait_serving()
            self.assertFalse(set(pids) & {rank["pid"] for rank in server.workers()})
            self.assertEqual(len(server.workers()), 2)
            text, reason = chat(server, QUESTIONS[0])
            self.assertTrue(text and reason)

            self.assertEqual(server.cli("stop").returncode, 0)
            self.assertEqual(server.status()["state"], "stopped")
            self.assertEqual(server.cli("stop", "--all").returncode, 0)
            self.assertEqual(server.daemon.wait(20), 0)
        except BaseException:
            print(server.log()[-8000:], flush=True)
            server.stop(check=False)
            raise
        server.stop()


if __name__ == "__main__":
    unittest.main()
