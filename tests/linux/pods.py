"""Runs the manifests of scripts/containers with crun, in the order of a kubelet.

usage: pods.py SCENARIO DIRECTORY BINARY CREDENTIALS

The images are this machine's /usr and /etc with the binary of zarrfs. CREDENTIALS are the variables of the secret, as
JSON. Pods are in the network of the machine, and have no control groups. The caller gives this process a mount
namespace of its own.
"""

import array
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import yaml

MANIFESTS = Path(__file__).resolve().parent.parent.parent / "scripts/containers"
# Those of containerd (oci/spec.go), of which a container loses `drop`.
DEFAULT_CAPABILITIES = """CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE
SYS_CHROOT KILL AUDIT_WRITE""".split()
PROPAGATION = {"Bidirectional": "rshared", "HostToContainer": "rslave", None: "rprivate"}
SECCOMP = Path("/usr/share/containers/seccomp.json")
FUSE = {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 0o666}


def capabilities(security):
    if security.get("privileged"):
        # All that this process has, which may be less than all.
        text = subprocess.run(["setpriv", "--list-caps"], stdout=subprocess.PIPE, text=True, check=True).stdout
        bounds = int(re.search(r"^CapBnd:\s*(\w+)$", Path("/proc/self/status").read_text(), re.M)[1], 16)
        return [f"CAP_{name.upper()}" for bit, name in enumerate(text.split()) if bounds >> bit & 1]
    is_dropped = "ALL" in security.get("capabilities", {}).get("drop", [])
    return [] if is_dropped else [f"CAP_{name}" for name in DEFAULT_CAPABILITIES]


def system_calls(names):
    """The profile RuntimeDefault of containers, in the format of crun, with what these capabilities add to it. Without
    the package golang-github-containers-common there is none."""
    if not SECCOMP.exists():
        return {}
    profile, rules = json.loads(SECCOMP.read_text()), []
    here = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine)
    for rule in profile["syscalls"]:
        wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
        is_wanted = set(wanted.get("caps", [])) <= set(names) and here in wanted.get("arches", [here])
        if is_wanted and not set(unwanted.get("caps", [])) & set(names) and here not in unwanted.get("arches", []):
            rules.append({name: rule[name] for name in ("names", "action", "args", "errnoRet") if rule.get(name)})
    return {"seccomp": {"defaultAction": profile["defaultAction"], "defaultErrnoRet": 38, "syscalls": rules}}


class Container:
    """A container of a pod. It may be started several times."""

    def __init__(self, pod, spec):
        self.pod, self.spec = pod, spec
        self.security = spec.get("securityContext", {})
        self.id = f"{pod.directory.name}-{spec['name']}-{os.getpid()}"
        self.bundle = pod.directory / "bundles" / spec["name"]
        self.process = None

    def arguments(self):
        entrypoint = self.pod.entrypoint if "zarrfs:" in self.spec["image"] else []
        return self.spec.get("command", entrypoint) + self.spec.get("args", [])

    def mounts(self):
        readonly = ["rbind", "ro"]
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": readonly},
            {"destination": "/etc", "type": "bind", "source": "/etc", "options": readonly},
            {"destination": "/image", "type": "bind", "source": str(self.pod.image), "options": readonly},
        ]
        for mount in self.spec.get("volumeMounts", []):
            options = ["rbind", PROPAGATION[mount.get("mountPropagation")]]
            options += ["ro"] if mount.get("readOnly") else []
            source = str(self.pod.volumes[mount["name"]])
            mounts.append({"destination": mount["mountPath"], "type": "bind", "source": source, "options": options})
        return mounts

    def config(self, arguments, variables):
        names = capabilities(self.security)
        modes = {option for mount in self.mounts() for option in mount.get("options", [])}
        sets = ["bounding", "effective", "permitted"]
        secrets = self.pod.secret if "envFrom" in self.spec else {}
        environment = {"PATH": "/image:/usr/bin:/bin", "HOME": "/", **secrets, **variables}
        is_privileged = self.security.get("privileged", False)
        return {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": self.security.get("runAsUser", 0), "gid": self.security.get("runAsGroup", 0)},
                "args": arguments,
                "env": [f"{name}={value}" for name, value in environment.items()],
                "cwd": "/",
                "noNewPrivileges": self.security.get("allowPrivilegeEscalation") is False,
                "capabilities": {name: names for name in sets},
            },
            "root": {"path": "rootfs", "readonly": self.security.get("readOnlyRootFilesystem", False)},
            "mounts": self.mounts(),
            "linux": {
                "namespaces": [{"type": name} for name in ("pid", "mount", "ipc", "uts")],
                "rootfsPropagation": "rshared" if "rshared" in modes else "rslave",
                "devices": [FUSE] if is_privileged else [],
                **({} if is_privileged else system_calls(names)),
            },
        }

    def start(self, arguments=None, variables=None):
        root = self.bundle / "rootfs"
        shutil.rmtree(self.bundle, ignore_errors=True)
        for mount in self.mounts():
            (root / mount["destination"].lstrip("/")).mkdir(parents=True, exist_ok=True)
        (root / "tmp").mkdir(mode=0o1777)
        for name in ("bin", "lib", "lib64", "sbin"):
            (root / name).symlink_to(f"usr/{name}")
        config = self.config(arguments or self.arguments(), variables or {})
        (self.bundle / "config.json").write_text(json.dumps(config))
        command = crun("run", "--bundle", str(self.bundle), self.id)
        self.log = open(self.bundle / "log", "w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def wait(self, seconds=30):
        """Returns the exit status and the output."""
        status = self.process.wait(seconds)
        self.log.seek(0)
        return status, self.log.read()

    def runs(self):
        state = subprocess.run(crun("state", self.id), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return state.returncode == 0 and json.loads(state.stdout)["status"] == "running"

    def pid(self):
        state = subprocess.run(crun("state", self.id), stdout=subprocess.PIPE, check=True)
        return json.loads(state.stdout)["pid"]

    def execute(self, command, seconds=10):
        """Runs a command in the container; returns its exit status and output."""
        config = json.loads((self.bundle / "config.json").read_text())["process"]
        (self.bundle / "process.json").write_text(json.dumps({**config, "args": command}))
        execute = crun("exec", "--process", str(self.bundle / "process.json"), self.id)
        run = subprocess.run(execute, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
        return run.returncode, run.stdout

    def probe(self, name):
        """Runs a probe of the manifest once."""
        probe = self.spec[name]
        try:
            return self.execute(probe["exec"]["command"], probe.get("timeoutSeconds", 1))
        except subprocess.TimeoutExpired:
            return None, "the probe takes too long"

    def start_until(self, name):
        """Starts the container and returns when a probe of the manifest succeeds."""
        self.start()
        for _ in range(self.spec[name].get("failureThreshold", 60)):
            status, output = self.probe(name) if self.runs() else (None, "it does not run yet")
            if status == 0:
                return
            assert self.process.poll() is None, self.wait()
            # A kubelet waits for `periodSeconds`.
            time.sleep(0.1)
        raise AssertionError(f"the probe fails: {output}")

    def stop(self):
        """Ends the container as a kubelet does; returns its exit status and output."""
        subprocess.run(crun("kill", self.id, "TERM"), check=True)
        return self.wait(self.pod.spec.get("terminationGracePeriodSeconds", 30))

    def remove(self):
        if self.process:
            subprocess.run(crun("delete", "--force", self.id), stderr=subprocess.DEVNULL)
            self.process.kill()
            self.process.wait()


def crun(*arguments):
    return ["crun", "--cgroup-manager=disabled", "--root", str(Pod.state), *arguments]


class Pod:
    """A pod of a manifest, with its volumes below a directory whose mounts are shared, as those of a kubelet."""

    state = None

    def __init__(self, manifest, directory, binary, secret):
        self.manifest = yaml.safe_load((MANIFESTS / manifest).read_text())
        self.spec = self.manifest["spec"]
        self.spec = self.spec.get("template", self.manifest)["spec"]
        self.directory, self.secret = directory, secret
        dockerfile = (MANIFESTS / "Dockerfile").read_text()
        self.entrypoint = json.loads(re.search(r"^ENTRYPOINT (.*)$", dockerfile, re.M)[1])
        self.image = directory / "image"
        self.image.mkdir(parents=True)
        shutil.copy(binary, self.image / "zarrfs")
        shared = directory / "volumes"
        shared.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", shared], check=True)
        subprocess.run(["mount", "--make-rshared", shared], check=True)
        self.volumes = {volume["name"]: shared / volume["name"] for volume in self.spec["volumes"]}
        for volume in self.volumes.values():
            volume.mkdir()
            volume.chmod(0o777)
        Pod.state = directory / "crun"
        self.containers = [Container(self, spec) for spec in self.spec["containers"]]
        self.sidecars = [Container(self, spec) for spec in self.spec.get("initContainers", [])]
        assert all(container.spec["restartPolicy"] == "Always" for container in self.sidecars)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for container in self.containers + self.sidecars:
            container.remove()
        # With everything below it; what a daemon still serves ends with it.
        subprocess.run(["umount", "--lazy", "--recursive", self.directory / "volumes"])


class Driver(threading.Thread):
    """The node's part of meta-fuse-csi-plugin (pkg/csi_mounter/csi_mounter.go): creates the socket when the volume is
    published, and mounts and passes the device when the container connects."""

    OPTIONS = "nodev,nosuid,allow_other,default_permissions,rootmode=40000,user_id=0,group_id=0"

    def __init__(self, pod):
        super().__init__(daemon=True)
        volume = next(volume for volume in pod.spec["volumes"] if "csi" in volume)
        attributes = volume["csi"]["volumeAttributes"]
        self.name, self.target = volume["name"], pod.volumes[volume["name"]]
        self.options = self.OPTIONS + (",ro" if volume["csi"].get("readOnly") else ",rw")
        path = pod.volumes[attributes["fdPassingEmptyDirName"]] / attributes["fdPassingSocketName"]
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.path = path
        os.chown(path.parent, 65534, 65534)
        os.chown(path, 65534, 65534)
        os.chmod(path, 0o755)
        self.listener.listen()
        self.start()

    def run(self):
        connection, _ = self.listener.accept()
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"{self.options},fd={device}"
        mount = ["mount", "-i", "--internal-only", "-t", "fuse", "-o", options, self.name, self.target]
        subprocess.run(mount, check=True, pass_fds=[device])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [device]))]
        connection.sendmsg([json.dumps({"volumeName": self.name}).encode()], rights)
        os.close(device)
        connection.close()
        self.listener.close()
        self.path.unlink()


def is_mounted(path):
    """Whether something is mounted there, which need not answer."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return str(path) in [line.split(" ")[4] for line in lines]


READ = ["sh", "-c", 'cat "$0/zarr.json" && cksum < "$0/sst/c/15"']


def read_again(container, path):
    """Runs the container of a program again, with a command that reads; returns its output."""
    container.start(arguments=[*READ, path])
    status, output = container.wait()
    assert status == 0, output
    return output


def sidecar(pod):
    """The order of a sidecar, its probes, a restart while the program runs, and its end."""
    [zarrfs], [main] = pod.sidecars, pod.containers
    zarrfs.start_until("startupProbe")
    main.start()
    status, listing = main.wait()
    assert status == 0 and "zarr.json" in listing, listing
    bytes_read = read_again(main, "/data/ocean")
    # A daemon that does not answer fails the liveness probe. The kubelet kills the container, and starts it again.
    main.start(arguments=["sleep", "60"])
    while not main.runs():
        time.sleep(0.02)
    assert zarrfs.probe("livenessProbe")[0] == 0
    daemon = zarrfs.pid()
    os.kill(daemon, signal.SIGSTOP)
    status, output = zarrfs.probe("livenessProbe")
    assert status == 1 and "has not answered" in output, output
    subprocess.run(crun("kill", zarrfs.id, "KILL"), check=True)
    zarrfs.wait()
    zarrfs.start_until("startupProbe")
    status, again = main.execute([*READ, "/data/ocean"])
    assert (status, again) == (0, bytes_read), again
    main.remove()
    # Programs have ended: the sidecar ends at SIGTERM, and leaves no mount on the node.
    status, output = zarrfs.stop()
    assert status == 0, (status, output)
    assert not is_mounted(pod.volumes["data"] / "ocean")
    return bytes_read


def daemonset(pod):
    """A mount of a node, which programs in other pods read; a pod that follows one that was killed."""
    [zarrfs] = pod.containers
    zarrfs.start_until("readinessProbe")
    # Another pod, with the directory of the node.
    mount = {"name": "data", "mountPath": "/data", "mountPropagation": "HostToContainer"}
    reader = Container(pod, {"name": "reader", "image": "debian", "volumeMounts": [mount]})
    pod.containers.append(reader)
    bytes_read = read_again(reader, "/data/ocean")
    reader.start(arguments=["sleep", "60"])
    subprocess.run(crun("kill", zarrfs.id, "KILL"), check=True)
    zarrfs.wait()
    # The dead mount is still on the node.
    assert is_mounted(pod.volumes["data"] / "ocean")
    zarrfs.start_until("readinessProbe")
    status, again = reader.execute([*READ, "/data/ocean"])
    assert (status, again) == (0, bytes_read), again
    reader.remove()
    status, output = zarrfs.stop()
    assert status == 0, (status, output)
    assert not is_mounted(pod.volumes["data"] / "ocean")
    return bytes_read


def unprivileged(pod):
    """A container without any capability serves the device that a driver passes."""
    [zarrfs], [main] = pod.sidecars, pod.containers
    Driver(pod)
    zarrfs.start_until("startupProbe")
    status = Path(f"/proc/{zarrfs.pid()}/status").read_text()
    assert len(re.findall(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\s*0+$", status, re.M)) == 5, status
    assert re.search(r"^Uid:\s*65534\s", status, re.M) and re.search(r"^NoNewPrivs:\s*1$", status, re.M), status
    assert not SECCOMP.exists() or re.search(r"^Seccomp:\s*2$", status, re.M), status
    main.start()
    status, listing = main.wait()
    assert status == 0 and "zarr.json" in listing, listing
    bytes_read = read_again(main, "/data")
    status, output = zarrfs.stop()
    assert status == 143 and "mounted by another program" in output, (status, output)
    # The driver unmounts when the pod is gone.
    subprocess.run(["umount", pod.volumes["data"]], check=True)
    return bytes_read


def job(pod):
    """All pods of the job, at the same time; returns the directory with the results."""
    [container] = pod.containers
    spec = pod.manifest["spec"]
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
    tasks = []
    for index in range(spec["completions"]):
        task = Container(pod, {**container.spec, "name": f"zarrfs-{index}"})
        pod.containers.append(task)
        task.start(variables={"JOB_COMPLETION_INDEX": index})
        tasks.append(task)
    for task in tasks:
        status, output = task.wait(60)
        assert status == 0, output
    results = pod.directory / "results"
    shutil.copytree(pod.volumes["results"], results)
    return " ".join(sorted(path.name for path in results.iterdir())) + "\n"


def main():
    scenario, directory, binary, credentials = sys.argv[1:]
    names = {"unprivileged": "sidecar-unprivileged"}
    manifest = f"{names.get(scenario, scenario)}.yaml"
    with Pod(manifest, Path(directory), binary, json.loads(credentials)) as pod:
        sys.stdout.write(globals()[scenario](pod))


if __name__ == "__main__":
    main()
