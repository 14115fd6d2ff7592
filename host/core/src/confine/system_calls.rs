//! seccomp: the system calls that a confined process cannot make.
//!
//! These are deny lists rather than allow lists: the libraries of this process make other calls with every
//! release, and a call that is missing on an allow list becomes a fault in production. The denials ensure
//! that no other process is inspected or changed, that no namespace, mount or root directory is changed, and
//! that no kernel interface is reachable that has a history of vulnerabilities and is unused here.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::{ProcessRole, ThreadCoverage};

/// Refused for every confined process.
const REFUSED: &[libc::c_long] = &[
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Namespaces, mounts and root directories.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_open_by_handle_at,
    // A program without a path is not the worker.
    libc::SYS_execveat,
    // Access to the kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Additionally refused for the compile worker, which only uses its pipes and computes.
const REFUSED_TO_WORKERS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_kill,
    libc::SYS_memfd_create,
];

/// Numbers of the x32 variant of x86_64, which differ from the others: execve, ptrace, process_vm_readv,
/// process_vm_writev, execveat.
#[cfg(target_arch = "x86_64")]
const X32: [libc::c_long; 5] = [520, 521, 539, 540, 545];

/// The bit that every call of that variant has.
#[cfg(target_arch = "x86_64")]
const X32_BIT: libc::c_long = 0x4000_0000;

/// The flags of `clone` that create a namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refuses all system calls that `role` does not need.
pub(super) fn restrict(role: &ProcessRole, coverage: ThreadCoverage) -> seccompiler::Result<()> {
    // `clone3` takes its flags in memory, which no filter can read. If it seems not to exist, the C library
    // falls back to `clone`.
    let newer = SeccompRules::from([(libc::SYS_clone3, Vec::new())]);
    for (rules, error) in [(refusals(role)?, libc::EPERM), (newer, libc::ENOSYS)] {
        let action = SeccompAction::Errno(error.unsigned_abs());
        let arch = std::env::consts::ARCH.try_into()?;
        let filter: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()?;
        match coverage {
            ThreadCoverage::Thread => seccompiler::apply_filter(&filter)?,
            ThreadCoverage::Process => seccompiler::apply_filter_all_threads(&filter)?,
        }
    }
    Ok(())
}

fn refusals(role: &ProcessRole) -> seccompiler::Result<SeccompRules> {
    let more = match role {
        ProcessRole::CompileWorker => REFUSED_TO_WORKERS,
        ProcessRole::Server(_) => &[],
    };
    let mut rules: SeccompRules = REFUSED.iter().chain(more).map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    {
        let also: Vec<_> = rules.keys().copied().chain(X32).map(|call| call | X32_BIT).collect();
        rules.extend(also.into_iter().map(|call| (call, Vec::new())));
    }
    rules.insert(libc::SYS_clone, clones(role)?);
    Ok(rules)
}

/// Returns the refused ways to start a thread or a process: any into a new namespace and, for the worker, any
/// that is not a thread.
fn clones(role: &ProcessRole) -> seccompiler::Result<Vec<SeccompRule>> {
    let flag = |flag: libc::c_int, set: bool| {
        let bit = u64::from(flag.unsigned_abs());
        let is = SeccompCmpOp::MaskedEq(bit);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, is, if set { bit } else { 0 })?;
        SeccompRule::new(vec![condition])
    };
    let mut rules = Vec::new();
    for namespace in NAMESPACES {
        rules.push(flag(namespace, true)?);
    }
    if matches!(role, ProcessRole::CompileWorker) {
        rules.push(flag(libc::CLONE_THREAD, false)?);
    }
    Ok(rules)
}
