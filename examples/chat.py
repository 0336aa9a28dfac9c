"""Load a model into this process, chat with it, and let it play.

python examples/chat.py [MODEL]    # a run, or a Hugging Face folder; an untrained toy by default
"""

import sys

import lemur_ray as lr

model = lr.load_model(sys.argv[1] if len(sys.argv) > 1 else "random:nano-chat")
print(model.chat("Write a haiku about Ray.", max_tokens=40, temperature=0.7, seed=1))
result = lr.evaluate(model, "alfworld/text", limit=2, prompt="brief", out="examples/chat")
print(result.headline)
model.close()
