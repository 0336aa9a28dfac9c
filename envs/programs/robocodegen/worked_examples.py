"""The project's worked examples, in the published form, that precede the function which a model is to write.

Their functions are defined when an answer runs. The authors' text is no part of it; --examples-file reads it."""

EXAMPLES = """\
import numpy as np
from shapely.geometry import *
from shapely.affinity import *

# define function: total = get_total(xs=numbers).
def get_total(xs):
    return np.sum(xs)

# define function: y = eval_line(x, slope, y_intercept=0).
def eval_line(x, slope, y_intercept):
    return x * slope + y_intercept

# define function: pt = move_pt_left(pt, dist).
def move_pt_left(pt, dist):
    return pt + np.array([-dist, 0])

# define function: pt = move_pt_up(pt, dist).
def move_pt_up(pt, dist):
    return pt + np.array([0, dist])

# define function: line = make_line_by_length(length=x).
def make_line_by_length(length):
    return LineString([[0, 0], [length, 0]])

# define function: line = make_vertical_line_by_length(length=x).
def make_vertical_line_by_length(length):
    line = make_line_by_length(length)
    return rotate(line, 90)

# define function: pt = interpolate_line(line, t=0.5).
def interpolate_line(line, t):
    pt = line.interpolate(t, normalized=True)
    return np.array(pt.coords[0])

# example: the middle of a line of length 2.
middle = interpolate_line(make_line_by_length(length=2), t=0.5)

# example: the corner of a block, a little further up.
corner = move_pt_up(get_obj_outer_pts_np('block0')[0], dist=0.1)

# example: where a line of slope 2 is at x = 3.
y = eval_line(x=3, slope=2, y_intercept=0)
"""
