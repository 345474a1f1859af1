/* exposition_reader.h: a strict reader of Prometheus text, for tests: what the formats demand, and no more.
 */
#ifndef DK_TESTS_EXPOSITION_READER_H
#define DK_TESTS_EXPOSITION_READER_H

#include <stdbool.h>
#include <stddef.h>

/* Fails the running cmocka test at the first fault; returns the number of series. */
size_t read_strictly(const char *text, bool is_openmetrics);
/* The value of the line of exactly this series, written as in the text; NaN when there is none. */
double value_of(const char *text, const char *series);

#endif
