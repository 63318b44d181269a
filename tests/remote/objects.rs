//! Stores in object stores, which list all they have.

use crate::compare::*;
use crate::servers::{Azurite, FakeGcs, Moto, Seaweed};
use crate::support::*;

#[test]
fn a_private_bucket_of_s3_is_the_local_store_to_who_has_its_keys() {
    let name = "a_private_bucket_of_s3_is_the_local_store_to_who_has_its_keys";
    let _dog = watchdog(name, 400);
    let served = served();
    let seaweed = Seaweed::signed();
    seaweed.put("private", served.path());
    let remote = seaweed.remote("private", seaweed.keys());
    all_are_the_local_ones(served.path(), &remote);
}

#[test]
fn a_public_bucket_of_s3_is_the_local_store_to_anybody() {
    let _dog = watchdog("a_public_bucket_of_s3_is_the_local_store_to_anybody", 400);
    let served = served();
    let seaweed = Seaweed::signed();
    seaweed.put(Seaweed::PUBLIC, served.path());
    let remote = seaweed.remote(Seaweed::PUBLIC, None);
    all_are_the_local_ones(served.path(), &remote);
}

#[test]
fn a_bucket_of_another_s3_server_is_the_local_store_to_its_user() {
    let name = "a_bucket_of_another_s3_server_is_the_local_store_to_its_user";
    let _dog = watchdog(name, 400);
    let served = served();
    let moto = Moto::start();
    moto.put("private", served.path());
    let keys = moto.enforce("private");
    all_are_the_local_ones(served.path(), &moto.remote("private", &keys));
}

#[test]
fn a_bucket_of_google_is_the_local_store() {
    let _dog = watchdog("a_bucket_of_google_is_the_local_store", 400);
    let served = served();
    let gcs = FakeGcs::start("bucket", served.path());
    all_are_the_local_ones(served.path(), &gcs.remote("bucket"));
}

#[test]
fn a_private_container_of_azure_is_the_local_store_to_who_has_its_key() {
    let name = "a_private_container_of_azure_is_the_local_store_to_who_has_its_key";
    let _dog = watchdog(name, 400);
    let served = served();
    let azurite = Azurite::start();
    azurite.put("private", served.path(), false);
    let remote = azurite.remote("private", Some(azurite.keys()));
    all_are_the_local_ones(served.path(), &remote);
}

#[test]
fn a_public_container_of_azure_is_the_local_store_to_anybody() {
    let name = "a_public_container_of_azure_is_the_local_store_to_anybody";
    let _dog = watchdog(name, 400);
    let served = served();
    let azurite = Azurite::start();
    azurite.put("public", served.path(), true);
    all_are_the_local_ones(served.path(), &azurite.remote("public", None));
}
