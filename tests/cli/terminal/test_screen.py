"""The screen passes keys to the prompt while there is one, and else to the actions and the list."""

from rich.text import Text

from haptic_trio.cli.terminal.rows import text_row
from haptic_trio.cli.terminal.screen import Screen
from haptic_trio.cli.terminal.walker import Walker

SIZE = (40, 10)


def make_screen() -> tuple[Screen, list[str], Walker]:
    pressed: list[str] = []

    def press(key: str) -> bool:
        pressed.append(key)
        return key == "x"

    screen = Screen(press, lambda _width: None)
    walker = Walker()
    walker.show([text_row(str(number), Text(f"row {number}")) for number in range(50)])
    screen.show_list(walker)
    screen.render(SIZE, True)
    return screen, pressed, walker


def test_a_key_is_an_action_or_one_of_the_list() -> None:
    screen, pressed, walker = make_screen()

    for key in ("x", "j", "down", "k", "G"):
        screen.keypress(SIZE, key)

    assert pressed == ["x", "down", "down", "up", "end"]
    assert walker.focus == 49


def test_a_prompt_takes_all_keys_until_enter_or_esc() -> None:
    screen, pressed, walker = make_screen()
    typed: list[str] = []
    done: list[str] = []
    screen.prompt("Search: ", "", done.append, changed=typed.append, dropped=lambda: done.append("dropped"))

    for key in ("x", "down", "tab", "y"):
        screen.keypress(SIZE, key)
    assert screen.render(SIZE, True).text[-1].decode().rstrip() == "Search: xy"
    screen.keypress(SIZE, "enter")

    assert (typed, done, pressed, walker.focus) == (["x", "xy"], ["xy"], [], 0)
    screen.prompt("Search: ", "xy", done.append, dropped=lambda: done.append("dropped"))
    screen.keypress(SIZE, "esc")
    assert done == ["xy", "dropped"]
    screen.keypress(SIZE, "x")
    assert pressed == ["x"]


def test_a_list_stays_where_it_was_scrolled_to() -> None:
    screen, _pressed, walker = make_screen()
    for _ in range(30):
        screen.keypress(SIZE, "down")
    before = screen.render(SIZE, True).text
    other = Walker()

    screen.show_list(other)
    assert screen.render(SIZE, True).text != before
    screen.forget_list(other)
    screen.show_list(walker)

    assert screen.render(SIZE, True).text == before
