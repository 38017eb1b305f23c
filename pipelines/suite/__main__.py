from pipelines.common import errors
from pipelines.suite.stage import main

if __name__ == "__main__":
    errors.run(main)
