#!/usr/bin/env python3
"""Write to a test server, or read from it with credentials: `client.py VERB ENDPOINT BUCKET ...`

s3-put     ENDPOINT BUCKET DIR    puts every file below DIR, under its path there; makes the bucket
s3-get     ENDPOINT BUCKET KEY    prints the object
s3-list    ENDPOINT BUCKET PREFIX prints every key, in pages of 100
azure-put  ENDPOINT BUCKET DIR    ENDPOINT names the account; AZURE_PUBLIC=1 lets everybody read
azure-get  ENDPOINT BUCKET KEY
azure-list ENDPOINT BUCKET PREFIX
moto-user  ENDPOINT BUCKET NAME   makes a user who may only read BUCKET; prints key and secret

Credentials are those of the usual environment variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY; without them a request is not signed.
"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

THREADS = 8


def files(root):
    """Keys and paths below `root`."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            yield os.path.relpath(path, root), path


def put_all(root, put):
    with ThreadPoolExecutor(THREADS) as threads:
        done = list(threads.map(lambda file: put(*file), sorted(files(root))))
    print(len(done))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def aws(service, endpoint):
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    how = {
        "retries": {"max_attempts": 2},
        "max_pool_connections": THREADS,
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "s3": {"addressing_style": "path"},
    }
    if "AWS_ACCESS_KEY_ID" not in os.environ:
        how["signature_version"] = UNSIGNED
    return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", config=Config(**how))


def s3_put(endpoint, bucket, root):
    s3 = aws("s3", endpoint)
    try:
        s3.create_bucket(Bucket=bucket)
    except s3.exceptions.BucketAlreadyOwnedByYou:
        pass
    put_all(root, lambda key, path: s3.put_object(Bucket=bucket, Key=key, Body=read(path)))


def s3_get(endpoint, bucket, key):
    sys.stdout.buffer.write(aws("s3", endpoint).get_object(Bucket=bucket, Key=key)["Body"].read())


def s3_list(endpoint, bucket, prefix):
    pages = aws("s3", endpoint).get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=bucket, Prefix=prefix, PaginationConfig={"PageSize": 100}):
        for item in page.get("Contents", []):
            print(item["Key"])


def moto_user(endpoint, bucket, name):
    iam = aws("iam", endpoint)
    iam.create_user(UserName=name)
    own = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    allow = {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": own}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    iam.put_user_policy(UserName=name, PolicyName="reads", PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    print(key["AccessKeyId"], key["SecretAccessKey"])


def container(endpoint, name):
    from azure.storage.blob import ContainerClient

    key = None
    if "AZURE_STORAGE_ACCOUNT_KEY" in os.environ:
        key = {
            "account_name": os.environ["AZURE_STORAGE_ACCOUNT_NAME"],
            "account_key": os.environ["AZURE_STORAGE_ACCOUNT_KEY"],
        }
    return ContainerClient(endpoint, name, credential=key, retry_total=2, connection_timeout=10)


def azure_put(endpoint, name, root):
    blobs = container(endpoint, name)
    if not blobs.exists():
        blobs.create_container(public_access="container" if os.environ.get("AZURE_PUBLIC") else None)
    put_all(root, lambda key, path: blobs.upload_blob(key, read(path), overwrite=True))


def azure_get(endpoint, name, key):
    sys.stdout.buffer.write(container(endpoint, name).download_blob(key).readall())


def azure_list(endpoint, name, prefix):
    for blob in container(endpoint, name).list_blobs(name_starts_with=prefix, results_per_page=100):
        print(blob.name)


def main(verb, *arguments):
    try:
        globals()[verb.replace("-", "_")](*arguments)
    except Exception as e:  # noqa: BLE001 - a refusal is an answer, not a traceback
        sys.exit(f"{verb}: {type(e).__name__}: {e}")


main(*sys.argv[1:])
