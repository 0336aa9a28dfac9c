"""ALFWorld's text games in plain Python, generated ones and the real ones: engine, expert, environment. No textworld.

games/      a game as data  ->  world (state, rules)  ->  play (text in, text out)  <-  grammar, sentences
knowledge   what a player can know from the texts  ->  expert  ->  demonstrations, hints
env, tasks, prompts, reply    ALFWorldText-v0; MINT's household (``envs.mint``) uses ``play`` alone
"""
