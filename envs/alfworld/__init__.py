"""ALFWorld's household text games in plain Python: engine, scripted expert and Gymnasium environment.

games/      a game as data  ->  world (state, rules)  ->  play (text in, text out)  <-  grammar, sentences
knowledge   what a player can know from the texts  ->  expert  ->  hints, demonstrations (with slips)
env, tasks, prompts, reply    ALFWorldText-v0; MINT's household (``envs.mint``) uses ``play`` alone"""
