/* rest_int.h — what the files of the rest codec share: one value from its text.
 * Not here: the door (rest.h).
 * Threads:  no state.
 * Memory:   the arena of the request; texts are borrowed from the request when they can be.
 * Errors:   rest_set_scalar() says REST_BAD, and the caller how its place calls that. */
#pragma once
#include "aws/rest.h"

enum rest_set { REST_OK, REST_BAD, REST_FULL /* the arena */ };

/* 'text' into the member at 'to'. XML texts have white space around numbers trimmed. */
enum rest_set rest_set_scalar(const struct aws_service *s, const struct aws_shape *sh,
                              unsigned flags, unsigned default_ts, struct str text,
                              struct arena *a, void *to);
/* Is anything there? 'at' points to the member's place. */
bool rest_is_set(const struct aws_shape *sh, const void *at);
/* The next element of a list, growing it; NULL past the arena's limit or REST_MAX_ITEMS. */
void *rest_list_next(const struct aws_shape *sh, void *list, struct arena *a);
