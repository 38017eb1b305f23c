from pipelines.common import errors
from pipelines.sweep.tune import main

if __name__ == "__main__":
    errors.run(main)
