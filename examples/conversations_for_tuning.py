"""Solved episodes as a data set: the games' expert plays, and the conversations are what TRL or lemur trains on.

python examples/conversations_for_tuning.py
"""

import lemur_ray as lr

result = lr.evaluate("expert", "alfworld/text", limit=8, split="train", out="examples/expert")
dataset = result.to_dataset().filter(lambda episode: episode["score"] == 1.0)
print(dataset)
print(dataset[0]["messages"][-1])
