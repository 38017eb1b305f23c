from pipelines.common import errors
from pipelines.data.build import main

if __name__ == "__main__":
    errors.run(main)
