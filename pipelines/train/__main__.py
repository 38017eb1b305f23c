from pipelines.common import errors
from pipelines.train.stage import main

if __name__ == "__main__":
    errors.run(main)
