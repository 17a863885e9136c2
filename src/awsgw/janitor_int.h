/* janitor_int.h — the steps of the janitor, one record each.
 * Not here: when they run (janitor.c).
 * Threads:  of the janitor.
 * Memory:   a step has an arena and a transaction of its own.
 * Errors:   logged; true = a change was committed. */
#pragma once
#include "awsgw/store.h"
#include "awsgw/txn.h"

struct step {
    struct gw *gw;
    struct arena *a;
    struct txn *t;
    uint64_t now_ns;
};

bool janitor_commit(struct step *s, const char *event, struct str id);

/* Forgets images that are gone; makes the snapshots of an image whose instance has stopped. */
bool janitor_image(struct step *s, const struct view_entry *e);
bool janitor_tags(struct step *s, const struct view_entry *e);
/* An instance that was stopped for an image: started again when its disks have been taken. */
bool janitor_imaging(struct step *s, const struct view_entry *e);
/* Forgets snapshots that are gone; ends those that only carried bytes to a copy of a volume. */
bool janitor_snapshot(struct step *s, const struct view_entry *e);
