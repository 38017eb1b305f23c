from pipelines import cli

if __name__ == "__main__":
    cli.run("fetch")
