/* nearest.h — the known word that a mistyped one probably meant.
 * Not here: what the words are.
 * Threads:  no state.
 * Memory:   answers one of the words given.
 * Errors:   NULL when nothing is near. */
#pragma once
#include "base/str.h"

/* 'words[i]' is at p + i * stride and is a const char *. */
const char *nearest_word(struct str typed, const void *words, size_t n_words, size_t stride);
