"""What is a name in a text, of what parts it is made, and which words name nothing."""

# English words that say nothing of what a text is about.
_STOP_WORDS = (
    "a about after all also am an and any are as at be because been before being between but "
    "by can could did do does doing done for from get got had has have having he her here him "
    "his how i if in into is it its just let like made make may me might more most my no not "
    "now of off on one or our out over own said same say see she should so some such than "
    "that the their them then there these they this those through to too under up us use used "
    "using very want was we were what when where which while who whom why will with would you "
    "your"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
