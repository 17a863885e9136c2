/* mon_int.h — the parts of spx-guestmon, which owns one QEMU, its QMP socket and its console.
 * Not here: anything the root service does. This process runs as the guest's user, may open
 *           nothing (mon_sandbox.c), and goes on when spx-compute dies; when it is killed
 *           itself, QEMU goes on and a new one adopts it.
 * Files:    guestmon.c start and main loop; mon_client.c the service's socket; mon_qmp.c the
 *           QMP connection; mon_job.c commands of several steps; mon_console.c the serial
 *           port; mon_sandbox.c seccomp.
 * Threads:  one.
 * Memory:   one struct mon, in main.
 * Errors:   negative errno. What QEMU refuses is told to the service; what breaks a connection
 *           drops it, and it is made again. */
#pragma once
#include "compute/console_log.h"
#include "compute/guest_proto.h"
#include "os/qmp.h"
#include <sys/types.h>

#define MON_RECONNECT_NS  (UINT64_C(500) * 1000000)
#define MON_POLL_NS       (UINT64_C(10) * 1000000000)
#define MON_POLL_EARLY_NS (UINT64_C(2) * 1000000000)
#define MON_KILL_NS       (UINT64_C(5) * 1000000000) /* from "quit" to SIGKILL */
#define MON_HOST_NS       (UINT64_C(30) * 1000000000) /* a guest's time when the host goes down */
#define MON_MAX_PENDING   64u
#define MON_FD_LISTEN     3 /* numbers that spx-compute passes descriptors under */
#define MON_FD_LOG        4
#define MON_FD_LOG_OLD    5
#define MON_FD_QEMU       6 /* this one and all after it go to QEMU under the same number */

/* What an answer of QEMU is for. */
enum mon_cmd {
    MON_CMD_CAPABILITIES,
    MON_CMD_STATUS,
    MON_CMD_DEVICES,
    MON_CMD_CHARDEVS,
    MON_CMD_NODES,
    MON_CMD_VIRTIO,
    MON_CMD_JOB, /* a step of the running job */
    MON_CMD_IGNORE,
};

struct mon_pending {
    uint64_t id;
    enum mon_cmd cmd;
    unsigned slot;
};

/* A command of the service, or our own cleaning up (MON_JOB_CLEAN), as steps. */
#define MON_JOB_NONE  0u
#define MON_JOB_CLEAN 1000u
struct mon_job {
    uint32_t op; /* GM_OP_*, MON_JOB_CLEAN or MON_JOB_NONE */
    unsigned step, slot;
    uint32_t seq; /* 0 = nobody waits for a result */
    struct gm_cmd cmd;
    char path[GM_TEXT_MAX];
    int code; /* of the result */
    char text[GM_TEXT_MAX];
};

struct mon {
    const char *dir;
    struct gm_state st;
    bool is_state_new; /* send it */
    bool is_done;

    int listen_fd, conn_fd;
    int qmp_fd, con_fd, err_fd, pid_fd, sig_fd; /* -1 = none */
    bool is_child; /* QEMU is our child: its end can be waited for */
    struct console_log log;
    bool is_log_failed,
        is_line_over; /* is_line_over: the next byte begins a new line of QEMU's */
    size_t text_n;

    struct qmp *qmp;
    uint64_t next_id;
    struct mon_pending pending[MON_MAX_PENDING];
    size_t n_pending;
    bool is_qmp_ready; /* capabilities negotiated, disks looked up */
    bool has_no_virtio_query;
    struct mon_job job;
    char letter[GM_N_DISKS]; /* how a disk is connected: qemu_args.h */
    uint32_t there;          /* bit per slot: a device sits there, as QEMU said last */
    uint32_t dirty_slots;    /* bit per slot: the device has gone, its connection has not */
    bool is_quitting, is_reboot_asked, is_cont_due;
    bool is_guest_off, is_signalled; /* how QEMU was brought to its end */
    bool is_host_down;               /* SIGTERM: nobody will collect the end of QEMU */

    uint64_t now_ns, last_answer_ns, next_poll_ns, next_qmp_ns, next_con_ns, kill_ns;
};

/* guestmon.c */
int mon_connect(
    const struct mon *m,
    const char *name); /* a socket of QEMU in the guest's folder, or negative errno */
void mon_kill(struct mon *m);

void mon_host_down(struct mon *m);

/* mon_client.c */
void mon_accept(struct mon *m);
void mon_client_read(struct mon *m);
void mon_client_drop(struct mon *m);
void mon_result(struct mon *m, uint32_t seq, int code, const char *text);
void mon_send_state(struct mon *m);

/* mon_qmp.c */
void mon_qmp_connect(struct mon *m);
void mon_qmp_read(struct mon *m);
void mon_qmp_drop(struct mon *m);
void mon_qmp_tick(struct mon *m);
void mon_quit(struct mon *m);
int mon_qmp_send(struct mon *m, enum mon_cmd cmd, unsigned slot, const char *name,
                 struct str args);

/* mon_job.c */
void mon_job_start(struct mon *m, const struct gm_cmd *c);
void mon_job_answer(struct mon *m, bool is_ok,
                    struct str desc); /* the answer to the step that runs */
void mon_job_abort(struct mon *m, int code, const char *text);
void mon_job_idle(struct mon *m); /* starts cleaning when there is something to clean */

/* mon_console.c */
void mon_console_connect(struct mon *m);
void mon_console_read(struct mon *m);
int mon_console_input(struct mon *m, struct str bytes);
void mon_stderr_read(struct mon *m);

/* mon_sandbox.c: no new descriptors from names, no new processes, no memory that runs; -errno
 * when the kernel refuses. */
MUST_CHECK int mon_sandbox(void);
