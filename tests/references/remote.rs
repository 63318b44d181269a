//! References and targets on servers.

use std::fs;
use std::process::Command;

use rustix::io::Errno;
use url::Url;

use crate::servers::{Moto, Nginx};
use crate::support::*;
use crate::{copied, fixtures, is_equal, make};

/// Returns the number of requests for data, without those for references.
fn of(nginx: &Nginx, name: &str) -> usize {
    let requests = nginx.requests();
    requests
        .iter()
        .filter(|request| request.path.ends_with(name))
        .count()
}

#[test]
fn references_on_a_web_server_lead_to_files_beside_them() {
    let nginx = Nginx::start(&fixtures());
    for references in [
        "combined.json",
        "combined.json.gz",
        "combined.json.zst",
        "combined.parq",
    ] {
        let mount = nginx.remote("").mount(references);
        is_equal(&mount, "combined");
        mount.unmount();
    }
    for references in ["plain.json", "climate-v0.json", "classic.json"] {
        let mount = nginx.remote("").mount(references);
        is_equal(&mount, references.split(['.', '-']).next().unwrap());
        mount.unmount();
    }
}

#[test]
fn parquet_references_in_a_remote_zip_are_mounted() {
    let nginx = Nginx::start(&fixtures());
    let mount = nginx.remote("").mount("combined.parq.zip");
    is_equal(&mount, "combined");
    mount.unmount();
}

#[test]
fn neighbours_in_a_remote_file_are_fetched_together() {
    let nginx = Nginx::start(&fixtures());
    let mount = nginx.remote("").mount("plain.json");
    assert!(nginx.requests().len() <= 2, "{:?}", nginx.requests());
    read(mount.join("filtered/.zarrfs/filtered.npy")).unwrap();
    let requests = of(&nginx, "plain.h5");
    assert!(requests <= 10, "{requests} requests for 40 neighbours");
    is_equal(&mount, "plain");
    mount.unmount();
}

#[test]
fn native_keys_of_remote_targets_are_their_bytes() {
    let nginx = Nginx::start(&fixtures());
    let there = nginx.remote("").mount("plain.json");
    let here = Mount::new(fixtures().join("plain.json"));
    for key in ["filtered/0.0", "g/long/3", "scalar/0", "contiguous/0.0"] {
        assert_eq!(
            read(there.join(key)).unwrap(),
            read(here.join(key)).unwrap(),
            "{key}"
        );
    }
    there.unmount();
    here.unmount();
}

#[test]
fn targets_at_another_server_need_an_option() {
    let (directory, other) = (copied(), Nginx::start(&fixtures()));
    run(make()
        .arg("parquet")
        .arg(directory.path())
        .arg(other.url("")));
    let text = fs::read_to_string(directory.path().join("templates.json")).unwrap();
    let text = text.replace("PREFIX", &other.url(""));
    fs::write(directory.path().join("templates.json"), text).unwrap();
    let nginx = Nginx::start(directory.path());
    let host = other.url("");
    let sources = ["templates.json", "combined.parq"].map(|name| {
        let path = directory.path().join(name);
        [nginx.url(name), path.to_str().unwrap().to_owned()]
    });
    for source in sources.iter().flatten() {
        for (args, why) in [
            (&[][..], "--allow-target"),
            (&["--allow-target", "any"], "private"),
            (&["--allow-target", "https://127.0.0.1"], "private"),
        ] {
            let mount = Mount::with(source, args);
            let refused = read(mount.join("v/1.0.0"));
            assert_eq!(errno(refused), Errno::ACCESS.raw_os_error(), "{source}");
            assert!(mount.log().contains(why), "{}", mount.log());
            mount.unmount();
        }
    }
    assert_eq!(other.requests().len(), 0, "a refused target was requested");
    for source in sources.iter().flatten() {
        let mount = Mount::with(source, &["--allow-target", &host]);
        is_equal(&mount, "combined");
        mount.unmount();
    }
}

#[test]
fn a_target_that_redirects_leads_only_where_targets_may_be() {
    let (directory, other) = (copied(), Nginx::start(&fixtures()));
    let nginx = Nginx::start(directory.path());
    let host = other.url("");
    let port = Url::parse(&host).unwrap().port().unwrap();
    let text = fs::read_to_string(directory.path().join("templates.json")).unwrap();
    for (name, prefix) in [
        ("away.json", format!("to/{port}/")),
        ("here.json", "redirect/".into()),
    ] {
        let text = text.replace("PREFIX", &nginx.url(&prefix));
        fs::write(directory.path().join(name), text).unwrap();
    }
    for args in [&[][..], &["--allow-target", "any"]] {
        let mount = Mount::with(nginx.url("away.json"), args);
        let refused = read(mount.join("v/1.0.0"));
        assert_eq!(errno(refused), Errno::ACCESS.raw_os_error());
        let log = mount.log();
        assert!(log.contains("it is redirected to 127.0.0.1"), "{log}");
        assert!(
            log.contains(&format!("--allow-target {}", host.trim_end_matches('/'))),
            "{log}"
        );
        mount.unmount();
    }
    assert_eq!(other.requests().len(), 0, "a refused target was requested");
    let mount = Mount::with(nginx.url("away.json"), &["--allow-target", &host]);
    is_equal(&mount, "combined");
    mount.unmount();
    let mount = Mount::new(nginx.url("here.json"));
    is_equal(&mount, "combined");
    mount.unmount();
}

#[test]
fn headers_of_the_user_are_not_sent_to_another_server() {
    let (directory, other) = (copied(), Nginx::start(&fixtures()));
    let text = fs::read_to_string(directory.path().join("templates.json")).unwrap();
    let text = text.replace("PREFIX", &other.url("auth/"));
    fs::write(directory.path().join("templates.json"), text).unwrap();
    let remote = other.remote("auth");
    let nginx = Nginx::start(directory.path());
    let host = other.url("");
    // The credentials would also be valid at the other server.
    let source = nginx.url("templates.json");
    let mount = remote
        .arg("--allow-target")
        .arg(&host)
        .attempt(&source)
        .unwrap();
    assert_eq!(
        errno(read(mount.join("v/1.0.0"))),
        Errno::ACCESS.raw_os_error()
    );
    mount.unmount();
    // Credentials are sent to the server of the references.
    let mount = other.remote("auth").mount("combined.json");
    is_equal(&mount, "combined");
    mount.unmount();
}

#[test]
fn a_removed_or_changed_remote_target_is_an_error() {
    let directory = copied();
    let nginx = Nginx::start(directory.path());
    fs::remove_file(directory.path().join("day3.nc")).unwrap();
    let mount = nginx.remote("").mount("combined.json");
    assert_eq!(errno(read(mount.join("v/3.0.0"))), Errno::IO.raw_os_error());
    assert!(read(mount.join("v/4.0.0")).is_ok());
    let target = directory.path().join("day4.nc");
    let mut bytes = fs::read(&target).unwrap();
    bytes.reverse();
    bytes.push(0);
    fs::write(&target, bytes).unwrap();
    run(Command::new("touch")
        .args(["-d", "2001-01-01"])
        .arg(&target));
    assert_eq!(
        errno(read(mount.join("v/4.1.1"))),
        Errno::STALE.raw_os_error()
    );
    run(Command::new("touch").arg(directory.path().join("day5.nc")));
    assert_eq!(
        errno(read(mount.join("v/5.0.0"))),
        Errno::STALE.raw_os_error()
    );
    assert!(read(mount.join("v/.zarrfs/v.npy")).is_err());
    mount.unmount();
}

#[test]
fn references_in_a_bucket_lead_to_objects_of_it() {
    let moto = Moto::start();
    moto.put("data", &fixtures());
    let keys = moto.enforce("data");
    let remote = moto.remote("data", &keys).arg("--allow-newer-targets");
    for references in ["combined.json", "combined.parq", "combined.parq.zip"] {
        let mount = remote.mount(references);
        is_equal(&mount, "combined");
        mount.unmount();
    }
}

#[test]
fn a_warm_disk_cache_needs_no_data_of_a_target() {
    let nginx = Nginx::start(&fixtures());
    let cache = scratch();
    let cache = cache.path().join("cache").to_str().unwrap().to_owned();
    let mut before = 0;
    for round in 0..2 {
        let remote = nginx.remote("").arg("--disk-cache").arg(&cache);
        let mount = remote.mount("plain.json");
        is_equal(&mount, "plain");
        mount.unmount();
        let requests = of(&nginx, "plain.h5");
        if round == 0 {
            before = requests;
        } else {
            // One request revalidates the value.
            assert!(requests <= before + 2, "{before}, then {requests}");
        }
    }
}

#[test]
fn stored_chunks_of_references_are_a_file_with_few_requests() {
    let nginx = Nginx::start(&fixtures());
    let there = nginx.remote("").mount("plain.json");
    let here = Mount::new(fixtures().join("plain.json"));
    // 40 neighbours; chunks of which some are missing; 3.2 MB, which the kernel reads in parts of 256 KiB.
    for (name, most) in [("filtered", 10), ("g/holes", 10), ("g/long", 16)] {
        let last = name.rsplit('/').next().unwrap();
        let view = format!("{name}/.zarrfs/{last}.packed.nc");
        let local = read(here.join(&view)).unwrap();
        let before = of(&nginx, "plain.h5");
        let size = fs::metadata(there.join(&view)).unwrap().len();
        assert_eq!(size, local.len() as u64);
        assert_eq!(of(&nginx, "plain.h5"), before, "references have the sizes");
        assert!(read(there.join(&view)).unwrap() == local, "{name}");
        let requests = of(&nginx, "plain.h5") - before;
        assert!(requests <= most, "{requests} requests for {name}");
        let values = format!("{name}/.zarrfs/{last}.npy");
        let values = there.join(values);
        let read = run(make().arg("packed").arg(there.join(&view)).arg(values));
        assert_eq!(read.trim(), "equal", "{name}");
    }
    there.unmount();
    here.unmount();
}
