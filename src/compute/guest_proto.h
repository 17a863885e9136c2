/* guest_proto.h — fixed-size messages between spx-compute (root) and a guest's monitor.
 * The monitor is unprivileged and may have been taken over by its guest. The socket is
 * SOCK_SEQPACKET, one message a packet; both ends are of one build or the next on one machine:
 * integers are native, and GM_VERSION moves when a struct changes. The monitor answers each
 * command with one GM_RESULT, and sends its whole GM_STATE when anything in it changed and
 * after connecting. There is no queue of events: what happened while nobody listened is in the
 * counters and flags of the state.
 * Not here: sockets, QMP.
 * Threads:  plain values.
 * Memory:   plain values.
 * Errors:   gm_*_check() answers -EPROTO for whatever does not fit. */
#pragma once
#include "base/macro.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_MAGIC    0x314d5847u
#define GM_VERSION  2u

#define GM_N_DISKS  16u /* root ports for disks; order on the bus = slot */
#define GM_N_NICS   4u
#define GM_NAME_MAX 24u
#define GM_TEXT_MAX 256u

enum gm_type {
    GM_CMD = 1, /* compute -> monitor */
    GM_RESULT,  /* monitor -> compute */
    GM_STATE,   /* monitor -> compute */
};

enum gm_op {
    GM_OP_STATE = 1, /* send GM_STATE (a fresh look at QMP first) */
    GM_OP_DISK_ADD,  /* slot, name (volume id), n_queues, is_nbd, data: path of the socket */
    GM_OP_DISK_DEL,  /* slot; the answer means "asked"; the slot empties when the guest lets go
                      */
    GM_OP_DISK_CUT, /* slot; the block service has taken the volume away: the guest's device gives
                        I/O errors until it lets go, which it is asked to */
    GM_OP_DISK_GROW, /* slot, size, data: path; NBD disks only: the guest is told the new size */
    GM_OP_POWERDOWN, /* ACPI power button */
    GM_OP_REBOOT,    /* power button; when the guest goes down it is reset instead of ended */
    GM_OP_RESET,     /* at once */
    GM_OP_QUIT,      /* end QEMU: quit, then SIGKILL */
    GM_OP_INPUT,     /* data: bytes for the serial port */
    GM_OP_BYE,       /* QEMU is gone and its end is recorded: the monitor may go */
    GM_OP_N,
};

struct gm_head {
    uint32_t magic;
    uint16_t version, type;
    /* of the command; echoed by its result; 0 in a state that was not asked for */
    uint32_t seq;
    uint32_t size; /* of the whole message */
};

struct gm_cmd {
    struct gm_head head;
    uint32_t op, slot;
    uint64_t size; /* of the disk, bytes: CUT, GROW */
    uint32_t n_queues, is_nbd, data_n, pad;
    char name[GM_NAME_MAX]; /* ends in NUL */
    char data[GM_TEXT_MAX];
};

struct gm_result {
    struct gm_head head;
    int32_t code; /* 0 or negative errno */
    uint32_t pad;
    char text[GM_TEXT_MAX]; /* printable, ends in NUL */
};

enum gm_phase {
    GM_PHASE_STARTING = 1, /* QEMU was started, the guest has not run yet */
    GM_PHASE_RUNNING,
    GM_PHASE_ENDING, /* the guest switched itself off, or QEMU was told to quit */
    GM_PHASE_EXITED,
    GM_PHASE_N,
};

enum gm_exit {
    GM_EXIT_NONE = 0,
    GM_EXIT_GUEST,   /* the guest switched itself off (or did so after the power button) */
    GM_EXIT_QUIT,    /* we were told to end it */
    GM_EXIT_CODE,    /* QEMU ended by itself; exit_value = its code */
    GM_EXIT_SIGNAL,  /* QEMU was killed; exit_value = the signal */
    GM_EXIT_UNKNOWN, /* it is gone and nobody saw how (the monitor had been replaced) */
    GM_EXIT_N,
};

enum gm_slot {
    GM_SLOT_EMPTY = 0,
    GM_SLOT_USED,
    GM_SLOT_LEAVING, /* the guest was asked to let go */
    GM_SLOT_CUT,     /* volume taken away, device still there */
    GM_SLOT_N,
};

struct gm_state {
    struct gm_head head;
    uint8_t phase, exit,
        is_qmp_ok; /* is_qmp_ok: QEMU answered within the last GM_QMP_LATE_NS */
    uint8_t is_panicked, is_adopted;
    uint8_t is_driver_ok; /* a guest driver runs the first network interface (or the first disk
                             when there is none) */
    uint8_t pad[2];
    int32_t exit_value, qemu_pid;
    uint64_t qemu_start; /* field 22 of /proc/<pid>/stat: with the pid it names one process for
                            ever */
    uint64_t n_resets;   /* the guest restarted (by itself or by us) */
    uint64_t n_reboots_done; /* GM_OP_REBOOT and GM_OP_RESET that took effect */
    uint64_t console_bytes;  /* written to the log by this monitor */
    uint8_t slot[GM_N_DISKS];
    uint8_t is_busy[GM_N_DISKS]; /* the guest refused to let go the last time */
    char name[GM_N_DISKS][GM_NAME_MAX];
    char text[GM_TEXT_MAX]; /* EXITED: the last line QEMU wrote to its standard error */
};

union gm_msg {
    struct gm_head head;
    struct gm_cmd cmd;
    struct gm_result result;
    struct gm_state state;
};

#define GM_QMP_LATE_NS (UINT64_C(30) * 1000000000)

void gm_cmd_init(struct gm_cmd *c, enum gm_op op, uint32_t seq);
void gm_result_init(struct gm_result *r, uint32_t seq, int code, const char *text);
void gm_state_init(struct gm_state *s);

/* 'n' bytes were received. Checks everything, and that texts end in NUL and are printable. */
MUST_CHECK int gm_cmd_check(const union gm_msg *m, size_t n);
/* A result or a state; see head.type. */
MUST_CHECK int gm_answer_check(const union gm_msg *m, size_t n);
