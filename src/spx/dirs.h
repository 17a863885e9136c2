/* dirs.h — the folders of a node, with their owners and modes; and its certificates.
 * Not here: what services put into them.
 * Threads:  none of its own.
 * Memory:   none kept.
 * Errors:   negative errno and *err. Everything here may be called again and again. */
#pragma once
#include "model/config.h"

/* Makes what is missing below data_dir and run_dir; corrects owners and modes. */
MUST_CHECK int dirs_make(const struct config *c, struct err *err);
/* Makes the folder of a drive, or gives an empty one that root owns to predastore; "BadDrive" for
 * what holds other things: it might be a folder that somebody else needs. */
MUST_CHECK int dirs_make_drive(const struct config *c, const char *path, struct err *err);
/* Gives one file below data_dir, or all files directly in a folder, to a service. */
MUST_CHECK int dirs_give(const struct config *c, const char *name, enum config_uid to,
                         struct err *err);

/* Makes the cluster's authority when there is none (its certificate goes beside the
 * configuration too), and for awsgw and predastore a server certificate each when there is none,
 * when it ends within 'days_left' days, or when it does not cover a name or address of this host
 * or a domain of buckets. */
MUST_CHECK int certs_make(const struct config *c, unsigned days_left, bool *ret_changed,
                          char *ret_why, size_t why_size, struct err *err);
/* "<folder of the configuration>/ca.pem" */
const char *certs_ca_path(struct arena *a, const struct config *c);
