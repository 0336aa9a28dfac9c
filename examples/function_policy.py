"""Any Python function is a policy: play four household games with one, and look at what happened.

python examples/function_policy.py
"""

import random

import lemur_ray as lr


def wanderer(messages):
    """Reply to a conversation in OpenAI's form: go to a place that the first message names, at random."""
    words = messages[-1]["content"].replace(",", " ").replace(".", " ").split()
    places = [f"{word} {words[i + 1]}" for i, word in enumerate(words[:-1]) if words[i + 1].isdigit()]
    return f"go to {random.Random(len(messages)).choice(places)}" if places else "look"


result = lr.evaluate(wanderer, "alfworld/text", limit=4, out="examples/wanderer")
print(f"solved {result.headline['solved']} of {result.headline['n']}, 95 % interval {result.headline['interval_95']}")
print(result.to_pandas()[["task", "outcome", "turns", "seconds"]])
print("the page:", result.page)
