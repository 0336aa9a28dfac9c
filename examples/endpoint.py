"""Evaluate an OpenAI-compatible endpoint and read its failures.

python examples/endpoint.py http://127.0.0.1:8000/v1 [BENCHMARK]
"""

import sys

import lemur_ray as lr

url, benchmark = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "alfworld/text"
result = lr.evaluate(f"openai:{url}", benchmark, limit=8, prompt="brief", out="examples/endpoint")
print(result.headline)
for episode in result.episodes():
    if not episode.score and episode.trajectory.steps:
        last = episode.trajectory.steps[-1]
        print(f"{episode.key.task}: {episode.outcome}, the last reply was {last.reply[:60]!r}")
