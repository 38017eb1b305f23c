from pipelines.common import errors
from pipelines.report.page import main

if __name__ == "__main__":
    errors.run(main)
