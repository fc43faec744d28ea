"""A typed function as a job: `jobs work --handlers examples.word_tasks` does it, and `main` does it here."""

from chapter10.companions.work.functions import handlers, operations, task
from chapter10.companions.work.living_store import LivingStore
from chapter10.companions.work.worker import Worker


@task("words.count", version="1", retries=5, timeout=600)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def main(path: str) -> object:
    """Submit one job, do it, and return its result."""
    with LivingStore(path, operations(count_words)) as store, Worker(path, handlers(count_words)) as worker:
        job_id = count_words.submit(store, "alice", "the first text", text="one two three")
        worker.run(drain=True)
        return store.result("alice", job_id)["data"]
