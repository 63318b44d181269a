//! System calls that fail: a thread installs a filter (`seccomp_unotify(2)`), which it, the threads and the processes that
//! it starts from then on inherit. Another thread decides about each call that returns a descriptor or starts a thread.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread;

use libc::{c_int, c_long, c_ulong, seccomp_notif, seccomp_notif_resp, sock_filter, sock_fprog};

/// What a system call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It returns a descriptor; a failure is EMFILE.
    Descriptor,
    /// It starts a thread or a process; a failure is EAGAIN.
    Thread,
}

/// The calls of each class.
const DESCRIPTORS: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_accept4,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_pipe2,
    libc::SYS_dup,
    libc::SYS_memfd_create,
    libc::SYS_timerfd_create,
    libc::SYS_signalfd4,
    libc::SYS_inotify_init1,
    libc::SYS_pidfd_open,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
];
const THREADS: &[c_long] = &[libc::SYS_clone, libc::SYS_clone3];
/// `F_DUPFD` and `F_DUPFD_CLOEXEC` of `fcntl(2)` return descriptors, too.
const DUPLICATIONS: [c_int; 2] = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC];

static COUNTS: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
static FAILS: AtomicU64 = AtomicU64::new(0);
static CLASS: Mutex<Class> = Mutex::new(Class::Descriptor);

/// Makes the n-th call of a class from now on fail, in this process.
pub fn fail(class: Class, n: u64) {
    *CLASS.lock().unwrap_or_else(PoisonError::into_inner) = class;
    FAILS.store(n, SeqCst);
    COUNT.store(0, SeqCst);
    COUNTS.store(true, SeqCst);
}

/// Ends the failures; returns the number of calls since they began.
pub fn end() -> u64 {
    COUNTS.store(false, SeqCst);
    COUNT.load(SeqCst)
}

/// Supervises the calling thread, and all threads and processes that it starts from now on.
///
/// # Panics
/// If the system has no filters that ask.
pub fn supervise() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let supervisor = thread::Builder::new().name("supervisor".into());
    supervisor
        .spawn(move || receiver.recv().map(decide_all))
        .unwrap();
    sender.send(install().expect("a filter that asks")).unwrap();
}

fn statement(code: u32, value: u32) -> sock_filter {
    jump(code, value, 0, 0)
}

fn jump(code: u32, value: u32, if_true: usize, if_false: usize) -> sock_filter {
    sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: u8::try_from(if_true).unwrap(),
        jf: u8::try_from(if_false).unwrap(),
        k: value,
    }
}

/// Returns the program of the filter: calls of either class ask, all others are allowed.
fn program() -> Vec<sock_filter> {
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let calls: Vec<c_long> = DESCRIPTORS.iter().chain(THREADS).copied().collect();
    // The number of the call is at 0 and the second argument at 24 (`struct seccomp_data`).
    let mut program = vec![statement(load, 0)];
    let tail = 5;
    for (place, call) in calls.iter().enumerate() {
        let behind = calls.len() - place - 1;
        program.push(jump(
            equals,
            u32::try_from(*call).unwrap(),
            behind + tail,
            0,
        ));
    }
    program.extend([
        jump(equals, u32::try_from(libc::SYS_fcntl).unwrap(), 0, 3),
        statement(load, 24),
        jump(equals, DUPLICATIONS[0].unsigned_abs(), 2, 0),
        jump(equals, DUPLICATIONS[1].unsigned_abs(), 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF),
    ]);
    program
}

/// Installs the filter in the calling thread, and returns the descriptor that receives its questions.
#[allow(unsafe_code)]
fn install() -> io::Result<OwnedFd> {
    let mut program = program();
    let filter = sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: `filter` points to a program of that length, which the kernel copies.
    let install = || unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const filter,
        )
    };
    let mut installed = install();
    if installed < 0 {
        // Without CAP_SYS_ADMIN a process has to give up new privileges first.
        // SAFETY: a call without pointers.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        installed = install();
    }
    match c_int::try_from(installed) {
        // SAFETY: the kernel has opened the descriptor for the caller.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Answers all questions, as long as a supervised thread exists.
#[allow(unsafe_code)]
fn decide_all(listener: OwnedFd) {
    const RECEIVE: c_ulong = 0xc050_2100;
    const SEND: c_ulong = 0xc018_2101;
    loop {
        // SAFETY: zero is valid for a structure of numbers, and what the kernel requires.
        let mut question: seccomp_notif = unsafe { zeroed() };
        // SAFETY: the kernel writes to a structure of this type.
        let received = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut question) };
        if received != 0 {
            match io::Error::last_os_error().raw_os_error() {
                // A signal, or a thread that has ended meanwhile.
                Some(libc::EINTR | libc::ENOENT) => continue,
                _ => return,
            }
        }
        let error = decide(c_long::from(question.data.nr));
        let mut answer = seccomp_notif_resp {
            id: question.id,
            val: 0,
            error: -error,
            flags: if error == 0 {
                libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32
            } else {
                0
            },
        };
        // Fails if the thread has ended meanwhile.
        // SAFETY: the kernel reads a structure of this type.
        unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut answer) };
    }
}

/// Returns the errno of a call; 0 if it is made.
fn decide(call: c_long) -> c_int {
    if !COUNTS.load(SeqCst) {
        return 0;
    }
    let class = if THREADS.contains(&call) {
        Class::Thread
    } else {
        Class::Descriptor
    };
    let counted = *CLASS.lock().unwrap_or_else(PoisonError::into_inner);
    if class != counted {
        return 0;
    }
    match COUNT.fetch_add(1, SeqCst) + 1 == FAILS.load(SeqCst) {
        true if class == Class::Thread => libc::EAGAIN,
        true => libc::EMFILE,
        false => 0,
    }
}
