#include "compute/mon_int.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* What the main loop needs, and the C library under it. Everything else is refused with EPERM
 * (not with death: a call that was forgotten must not end the monitor). Opening files, starting
 * programs, tracing, mounting are not here. */
static const unsigned allowed[] = {
    __NR_read,         __NR_write,          __NR_readv,        __NR_writev,
    __NR_pread64,      __NR_pwrite64,       __NR_ftruncate,    __NR_fstat,
    __NR_lseek,        __NR_close,          __NR_fcntl,        __NR_sendmsg,
    __NR_recvmsg,      __NR_sendto,         __NR_recvfrom,     __NR_accept4,
    __NR_connect,      __NR_getsockopt,     __NR_setsockopt,   __NR_getpeername,
    __NR_ppoll,        __NR_clock_gettime,  __NR_gettimeofday, __NR_clock_nanosleep,
    __NR_nanosleep,    __NR_futex,          __NR_mmap,         __NR_munmap,
    __NR_mremap,       __NR_madvise,        __NR_brk,          __NR_getrandom,
    __NR_rt_sigaction, __NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_sigaltstack,
    __NR_wait4,        __NR_waitid,         __NR_exit,         __NR_exit_group,
    __NR_getpid,       __NR_gettid,         __NR_getuid,       __NR_restart_syscall,
    __NR_sched_yield,  __NR_mprotect,       __NR_tgkill,       __NR_pidfd_send_signal,
#ifdef __NR_poll
    __NR_poll,
#endif
#ifdef __NR_newfstatat
    __NR_newfstatat,
#endif
#ifdef __NR_rseq
    __NR_rseq,
#endif
};

#if defined(__x86_64__)
#define ARCH_AUDIT AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH_AUDIT AUDIT_ARCH_AARCH64
#else
#error "name the audit architecture of this processor"
#endif

#define LOAD(off)         BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (off))
#define IF_EQ(k, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (k), (yes), (no))
#define ANSWER(k)         BPF_STMT(BPF_RET | BPF_K, (k))

int mon_sandbox(void)
{
    struct sock_filter f[ARRAY_LEN(allowed) * 2 + 16];
    unsigned short n = 0;
    f[n++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, arch));
    f[n++] = (struct sock_filter)IF_EQ(ARCH_AUDIT, 1, 0);
    f[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_KILL_PROCESS);
    f[n++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        f[n++] = (struct sock_filter)IF_EQ(allowed[i], 0, 1);
        f[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
    }
    /* Sockets: of the unix kind only. */
    f[n++] = (struct sock_filter)IF_EQ(__NR_socket, 0, 3);
    f[n++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, args[0]));
    f[n++] = (struct sock_filter)IF_EQ(AF_UNIX, 0, 1);
    f[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
    f[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | EPERM);
    const struct sock_fprog prog = {.len = n, .filter = f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return -errno;
    }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0) {
        return -errno;
    }
    return 0;
}
