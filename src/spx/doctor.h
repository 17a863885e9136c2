/* doctor.h — looks whether this host can be a node, and whether the node is well: a line each, with
 * the cure.
 * Not here: the command (cmd_doctor.c).
 * Threads:  one.
 * Memory:   findings live in the arena.
 * Errors:   what is wrong is a finding; what cannot be looked at is said as a warning. */
#pragma once
#include "base/arena.h"
#include "model/config.h"

enum doctor_state { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor_finding {
    const char *name; /* "kvm" */
    enum doctor_state state;
    struct str what, cure; /* cure: absent when all is well */
};

#define DOCTOR_MAX 64u
struct doctor {
    struct arena *a;
    const char *root; /* in front of /proc, /sys, /dev and /etc; "" but for tests */
    struct doctor_finding v[DOCTOR_MAX];
    size_t n;
};

/* 'cure' NULL: fine. */
void doctor_add(struct doctor *d, const char *name, enum doctor_state state, const char *cure,
                const char *fmt, ...) PRINTF_LIKE(5, 6);
/* The file below root as text that ends in NUL; absent when there is none. */
struct str doctor_text(struct doctor *d, const char *path);

/* doctor_host.c: what the machine and its kernel have. data_dir need not be there yet. */
void doctor_host(struct doctor *d, const char *data_dir);
/* doctor_net.c: ports, pool, and who else has rules for packets. c may be a fresh one. */
void doctor_net(struct doctor *d, const struct config *c);
/* cmd_doctor.c: whether each service answers. */
struct spx;
void doctor_services(struct spx *s, struct doctor *d);
/* Pure, for tests. Which chains of others drop what is forwarded, by the text of "nft list
 * chains": "ip filter FORWARD"; absent: none. */
struct str doctor_forward_drop(struct arena *a, struct str chains);
/* Lines of the kernel's log that deny something to programs of ours: their number. */
size_t doctor_denials(struct str log);
