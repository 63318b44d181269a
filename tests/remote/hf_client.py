"""Reads the Hub of HF_ENDPOINT with huggingface_hub, and prints each path and the SHA-256 of its content."""
import hashlib

from huggingface_hub import HfApi, HfFileSystem

fs = HfFileSystem(use_listings_cache=False)
for source in ["datasets/ada/ocean", "datasets/ada/ocean@refs/pr/3", "spaces/ada/ocean", "ada/ocean", "buckets/ada/ocean"]:
    for path in sorted(fs.find(source)):
        with fs.open(path, block_size=1 << 10) as file:
            print(source, path[len(source) + 1 :], hashlib.sha256(file.read()).hexdigest())
for entry in HfApi().list_repo_tree("ada/ocean", repo_type="dataset", recursive=True):
    print("listed", entry.path, getattr(entry, "size", "-"))
