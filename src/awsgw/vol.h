/* vol.h — a volume as the API shows it: its spec, its status and its attachment, joined.
 * Not here: operations (ops_volume.c).
 * Threads:  no state.
 * Memory:   in the arena of the call.
 * Errors:   none. */
#pragma once
#include "awsgw/inst.h"

struct vol {
    const struct view_entry *entry;
    const struct volume *spec;
    const struct volume_status *status; /* NULL before viperblock has seen it */
    struct str state;      /* "creating", "available", "in-use", "deleting", "error" */
    struct str attachment; /* "attaching" ... "detached"; "detached" when there is none */
    /* The newest modification; NULL = there was none. */
    const struct view_entry *mod_entry;
    const struct volume_mod *mod;
    const struct volume_mod_status *mod_status;
    /* The spec with the size, type and figures that hold by now: those of a modification that is
     * under way or failed do not. */
    struct volume now;
};

/* "modifying", "optimizing", "completed", "failed" */
struct str vol_mod_state(const struct volume_mod *m, const struct volume_mod_status *st);

struct vol vol_join(struct aws_call *call, const struct view_entry *e);
/* The attachment, in the shape of EC2. */
void vol_attachment_out(const struct vol *v, struct ec2_volume_attachment *out);
/* The whole volume, with its tags. */
void ec2_volume_out(struct aws_call *call, const struct view_entry *e, struct ec2_volume *out);
