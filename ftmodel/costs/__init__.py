"""What a model costs, from its shape alone: the planner's numbers.

counting.py   a step's FLOPs and bytes, as torch counts them on tensors without storage
training.py   parameters, FLOPs and memory of training
scaling.py    what many GPUs send one another, and the speed that is left
"""
