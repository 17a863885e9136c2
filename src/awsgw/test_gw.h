/* test_gw.h — a gateway without sockets for unit tests: a real store in a folder of the test, and
 * its view.
 * Not here: calls and records (the tests').
 * Threads:  of the test.
 * Memory:   test_gw_open() fills kv and view of 'gw'; test_gw_close() ends them and removes the
 *           folder.
 * Errors:   false, after the reason was printed. */
#pragma once
#include "awsgw/gw.h"
#include "testkit/tmpdir.h"

/* 'on_change' as in struct view_ops; NULL = none. */
MUST_CHECK bool test_gw_open(struct gw *gw, struct tmpdir *dir, const char *name,
                             void (*on_change)(void *ctx, const struct view_entry *old,
                                               const struct view_entry *now));
void test_gw_close(struct gw *gw, struct tmpdir *dir);
