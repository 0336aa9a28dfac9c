"""RoboCodeGen: functions for a robot, about geometry and control."""
