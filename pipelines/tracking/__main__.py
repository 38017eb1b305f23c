from pipelines.common import errors
from pipelines.tracking.run import main

if __name__ == "__main__":
    errors.run(main)
