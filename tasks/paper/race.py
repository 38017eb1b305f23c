"""RACE, from a row a question to a document an article."""

from typing import Any

from datasets import Dataset


def by_article(rows: Any) -> Any:
    """Documents as the harness's `race` reads them: ``article``, and ``problems`` as the text of a
    list. The rows of an article have its file's name, ``example_id``, in common.
    """
    articles: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for row in rows:
        _, problems = articles.setdefault(row["example_id"], (row["article"], []))
        problems.append({key: row[key] for key in ("question", "options", "answer")})
    return Dataset.from_list(
        [
            {"article": article, "problems": repr(problems)}
            for article, problems in articles.values()
        ]
    )
