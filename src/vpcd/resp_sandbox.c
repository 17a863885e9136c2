/* The list of system calls that a responder may make once it serves. */
#include "vpcd/resp_int.h"

#include <errno.h>
#include <seccomp.h>
#include <sys/prctl.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

/* Not "open", not "socket", nothing that makes a process: what it holds is all it will ever
 * hold. accept4 gives connections of the passed listeners and of vpcd's own socket. */
static const int allowed[] = {
    SCMP_SYS(accept4),
    SCMP_SYS(adjtimex),
    SCMP_SYS(brk),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(close),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(fcntl),
    SCMP_SYS(fstat),
    SCMP_SYS(futex),
    SCMP_SYS(getpeername),
    SCMP_SYS(getpid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(ioctl),
    SCMP_SYS(madvise),
    SCMP_SYS(mmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(newfstatat),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(tgkill),
    SCMP_SYS(unlink),
    SCMP_SYS(write),
    SCMP_SYS(writev),
#ifdef HAS_SANITIZER
    /* The sanitizer's own work: threads for the leak check, its report. */
    SCMP_SYS(clone),
    SCMP_SYS(openat),
    SCMP_SYS(open),
    SCMP_SYS(readlink),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(prctl),
    SCMP_SYS(wait4),
    SCMP_SYS(getdents64),
    SCMP_SYS(getppid),
    SCMP_SYS(ptrace),
    SCMP_SYS(lseek),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(prlimit64),
    SCMP_SYS(getrlimit),
    SCMP_SYS(pipe),
    SCMP_SYS(pipe2),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(kill),
#endif
};

int resp_sandbox(struct err *err)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        return fail(err, -errno, "SandboxFailed", "no_new_privs: %m");
    }
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!ctx) {
        return fail(err, -ENOMEM, "SandboxFailed", "libseccomp gives no filter");
    }
    int r = 0;
    for (size_t i = 0; !r && i < ARRAY_LEN(allowed); i++) {
        /* Negative numbers: calls that this processor does not have (arm64 has no "poll"). */
        r = allowed[i] < 0 ? 0 : seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
    }
    static const int fatal[] = {SCMP_SYS(execve),  SCMP_SYS(execveat), SCMP_SYS(socket),
                                SCMP_SYS(connect), SCMP_SYS(bpf),      SCMP_SYS(mount)};
    for (size_t i = 0; !r && i < ARRAY_LEN(fatal); i++) {
        r = seccomp_rule_add(ctx, SCMP_ACT_KILL_PROCESS, fatal[i], 0);
    }
    r = r ? r : seccomp_load(ctx);
    seccomp_release(ctx);
    if (r) {
        errno = -r;
        return fail(err, r, "SandboxFailed", "filter of system calls: %m");
    }
    return 0;
}
