/* prepare.h — what a node must have before its services start: folders, drives, certificates, and
 *             copies of the root key. Makes what is missing: what an older version did not know
 *             of, too.
 * Not here: the configuration, the root key itself and accounts (cmd_init.c).
 * Threads:  one.
 * Memory:   none kept.
 * Errors:   negative errno and *err. A drive that cannot be prepared is said and passed over: the
 *           store starts without it, as it would when a drive dies. */
#pragma once
#include "spx/cmd.h"

/* Folders and drives. */
MUST_CHECK int prepare_dirs(struct spx *s, struct err *err);
/* Certificates; says when one is new. */
MUST_CHECK int prepare_certs(struct spx *s, struct err *err);
/* Every service that unwraps secrets has the root key in a file of its own. */
MUST_CHECK int prepare_keys(struct spx *s, struct err *err);
/* All of it; "NotInitialised" when there is no root key yet. */
MUST_CHECK int prepare_node(struct spx *s, struct err *err);
