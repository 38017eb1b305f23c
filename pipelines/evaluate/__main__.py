from pipelines.common import errors
from pipelines.evaluate.stage import main

if __name__ == "__main__":
    errors.run(main)
