"""A cron expression as an English sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rota.cron.days import DayRule, Special
from rota.cron.fields import Fields, never_falls_due

_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth")
_FEW: Final = 6  # up to so many times of day are listed


def sentence(fields: Fields, tz: str) -> str:
    """For instance: At 08:00 from Monday to Friday (Europe/Berlin)."""
    when, day = _time(fields), _day(fields)
    is_daily = day == "every day" and (when.startswith("Every") or when.endswith(("of every hour", "of every minute")))
    return f"{when} ({tz})." if is_daily else f"{when} {day} ({tz})."


def _time(fields: Fields) -> str:
    seconds = fields.second.values if fields.second else [0]
    minutes, hours = fields.minute.values, fields.hour.values
    if len(seconds) * len(minutes) * len(hours) <= _FEW:
        return "At " + _joined([_clock(h, m, s, seconds) for h in hours for m in minutes for s in seconds])
    return _minutes(minutes, hours) if seconds == [0] else _seconds(seconds, minutes, hours)


def _clock(hour: int, minute: int, second: int, seconds: Sequence[int]) -> str:
    return f"{hour:02}:{minute:02}" if seconds == [0] else f"{hour:02}:{minute:02}:{second:02}"


def _minutes(minutes: Sequence[int], hours: Sequence[int]) -> str:
    step = _even_step(minutes, 60)
    if step:
        return f"Every {_counted(step, 'minute')}{_during(hours)}"
    if len(minutes) == 1 and (_is_run(hours) or _even_step(hours, 24)):
        return _hourly(minutes[0], hours)
    return f"At {_numbered('minute', minutes)}{_of(hours)}"


def _hourly(minute: int, hours: Sequence[int]) -> str:
    step = _even_step(hours, 24)
    if step == 1:
        return "Every hour, on the hour" if minute == 0 else f"At minute {minute} of every hour"
    if step:
        return f"Every {step} hours, from 00:{minute:02} on"
    return f"Every hour from {hours[0]:02}:{minute:02} to {hours[-1]:02}:{minute:02}"


def _seconds(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> str:
    step = _even_step(seconds, 60)
    every_minute = len(minutes) == 60
    within = f"every minute{_during(hours)}" if every_minute else f"{_numbered('minute', minutes)}{_of(hours)}"
    if step:
        is_always = every_minute and len(hours) == 24
        return f"Every {_counted(step, 'second')}" + ("" if is_always else f" in {within}")
    return f"At {_numbered('second', seconds)} of {within}"


def _during(hours: Sequence[int]) -> str:
    if len(hours) == 24:
        return ""
    return f" from {hours[0]:02}:00 to {hours[-1]:02}:59" if _is_run(hours) else f" in {_numbered('hour', hours)}"


def _of(hours: Sequence[int]) -> str:
    return " of every hour" if len(hours) == 24 else f" of {_numbered('hour', hours)}"


def _day(fields: Fields) -> str:
    days, weekdays = fields.day.values, fields.weekday.values
    every_date, every_weekday = len(days) == 31, len(weekdays) == 7
    months = _months(fields)
    if (every_date or every_weekday) if fields.is_either else (every_date and every_weekday):
        return f"every day{months and ' in ' + months}"
    if every_date:
        return _by_weekday(fields, months)
    dates = _by_date(fields, months)
    if every_weekday:
        return dates
    if fields.is_either:
        other = "" if never_falls_due(fields) else f"{dates} and "
        return f"{other}{_by_weekday(fields, months)}"
    names = [_DAYS[day] for day in weekdays] + [_rule(rule, months) for rule in fields.weekday.rules]
    return f"{dates} if that is {'' if not weekdays else 'a '}{_joined(names, 'or')}"


def _by_weekday(fields: Fields, months: str) -> str:
    weekdays, rules = fields.weekday.values, fields.weekday.rules
    parts = [f"{_weekdays(weekdays)}{months and ' in ' + months}"] if weekdays else []
    return _joined([*parts, *(_on(rule, months) for rule in rules)])


def _by_date(fields: Fields, months: str) -> str:
    days, rules = fields.day.values, fields.day.rules
    parts = [_dates(days, fields.month.values, months)] if days else []
    return _joined([*parts, *(_on(rule, months) for rule in rules)])


def _on(rule: DayRule, months: str) -> str:
    text = _rule(rule, months)
    return text if text[0].isdigit() else f"on {text}"


def _rule(rule: DayRule, months: str) -> str:
    """For instance: the last Friday of every month."""
    of = f" of {months or 'every month'}"
    match rule.form:
        case Special.BEFORE_LAST:
            plural = "s" if rule.number > 1 else ""
            return f"{f'{rule.number} day{plural} before ' if rule.number else ''}the last day{of}"
        case Special.LAST_WORKING:
            return f"the last working day{of}"
        case Special.NEAREST_WORKING:
            return f"the working day nearest to day {rule.number}{of}"
        case Special.LAST_WEEKDAY:
            return f"the last {_DAYS[rule.weekday]}{of}"
        case Special.NTH_WEEKDAY:
            return f"the {_ORDINALS[rule.number - 1]} {_DAYS[rule.weekday]}{of}"


def _months(fields: Fields) -> str:
    months = fields.month.values
    return "" if len(months) == 12 else _runs(months, lambda month: _MONTHS[month - 1])


def _weekdays(weekdays: Sequence[int]) -> str:
    if weekdays == [0, 5, 6]:
        return "from Friday to Sunday"
    if _is_run(weekdays) and len(weekdays) > 2:
        return f"from {_DAYS[weekdays[0]]} to {_DAYS[weekdays[-1]]}"
    monday_first = sorted(weekdays, key=lambda day: day or 7)
    return "every " + _joined([_DAYS[day] for day in monday_first])


def _dates(days: Sequence[int], months: Sequence[int], named: str) -> str:
    if len(days) == 1 and len(months) == 1:
        return f"on {days[0]} {named}"
    return f"on {_numbered('day', days)} of {named or 'every month'}"


def _even_step(values: Sequence[int], size: int) -> int | None:
    """The n of "every n", where the values go on evenly from one hour (minute) into the next."""
    if len(values) < 2 or values[0] != 0:
        return None
    step = values[1]
    return step if size % step == 0 and list(values) == list(range(0, size, step)) else None


def _is_run(values: Sequence[int]) -> bool:
    return values[-1] - values[0] == len(values) - 1


def _counted(count: int, unit: str) -> str:
    return unit if count == 1 else f"{count} {unit}s"


def _numbered(unit: str, values: Sequence[int]) -> str:
    return f"{unit}{'s' if len(values) > 1 else ''} {_runs(values, str)}"


def _runs(values: Sequence[int], name: Callable[[int], str]) -> str:
    """The values in words, three or more in a row as a range, many at even distances as steps."""
    step = values[1] - values[0] if len(values) > _FEW else 1
    if step > 1 and list(values) == list(range(values[0], values[-1] + 1, step)):
        return f"{name(values[0])} to {name(values[-1])} in steps of {step}"
    parts: list[str] = []
    for run in _split(values):
        parts += [f"{name(run[0])} to {name(run[-1])}"] if len(run) > 2 else map(name, run)
    return _joined(parts)


def _split(values: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def _joined(parts: Sequence[str], word: str = "and") -> str:
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}" if len(parts) > 1 else parts[0]
