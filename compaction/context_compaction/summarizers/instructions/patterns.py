"""The signs of a rule, a wish, a correction: patterns in many languages, for find.py.

They only rank what the user said; nothing depends on their being complete.
"""

import re

RULE = re.compile(
    # English
    r"\b(must(n'?t)?|never|always|do(es)? ?n[o']t|don'?t|won'?t|can'?t|cannot|can not|may not|"
    r"should(n'?t)?|shall|only|prefer\w*|avoid\w*|ensure|make sure|be sure|forbid\w*|forbidden|"
    r"prohibited|banned?|(not )?allowed|permitted|required?|requirement|mandatory|off[- ]limits|"
    r"hands off|untouched|leave \w+|stick (to|with)|no longer|any ?more|from now on|going forward|"
    r"henceforth|instead|rather|unless|except|regardless|whatever (you do|happens)|"
    r"under no circumstances|no matter|at (most|least)|no (more|less|fewer|later) than|"
    r"(max|min)(imum)?|limit(ed)?|capped?|budget|deadline|due (by|on|date)|until|"
    r"by (mon|tues|wednes|thurs|fri|"
    r"satur|sun)day|by (the )?end|by noon|by midnight|before (we|you|any)|remember|keep in mind|"
    r"note that|bear in mind|important|crucial|critical|essential|strict\w*|exactly|insist|"
    r"rules?|convention|(?<!\bi )(has|have|needs?) to|supposed to|expected to|refuse|"
    r"rather than|instead of|without|stay\w*|keep|skip|drop|stop|refrain|consent|permission|"
    r"approv\w+|confirm\w*|ask me|tell me|check with|run it by|sign[- ]?off|decided|agreed|settled|"
    r"final|allerg\w+|hates?|dislikes?|"
    r"switch\w* to|call (it|me)|name it|treat|assume|"
    r"actually|scratch that|correction|change of plans?|changed my mind|on second thought|"
    r"forget (about|what|the|that)|nothing but|every (time|single)|each time|"
    r"not (to be|a single))\b"
    # Romance languages
    r"|\b(nunca|jam[aá]s|siempre|deb[eo]\w*|no (uses?|toques?|hagas|cambies|debes?|quiero|puede)|"
    r"prefier\w+|evit\w+|obligatori\w+|prohibid\w+|solo|s[oó]lo|solamente|en lugar de|en vez de|"
    r"a partir de ahora|recuerda|ten en cuenta|ya no|hasta|antes de(l)?|m[aá]ximo|"
    r"jamais|toujours|doi(s|t|vent)|ne \w+ (pas|plus|jamais|rien)|n'\w+ (pas|plus|jamais|rien)|"
    r"interdit\w*|uniquement|seulement|plut[oô]t|au lieu de|d[eé]sormais|"
    r"il faut|veuillez|obligatoire|au (plus|moins)|avant (le|de)|"
    r"mai|sempre|dev[ei]\w*|non (us|toc|far|devi|voglio)\w*|preferisc\w+|invece|d'ora in poi|"
    r"vietat\w+|soltanto|entro|nao|n[aã]o \w+|nunca|sempre|deve\w*|prefiro|apenas|"
    r"em vez de|proibid\w+|obrigat[oó]ri\w+|a partir de agora)\b"
    # Germanic and Slavic languages, Turkish
    r"|\b(nie(mals)?|immer|m[uü]ss\w*|darf\w*|d[uü]rf\w+|soll\w*|nicht|kein\w*|nur|"
    r"ausschlie[sß]+lich|statt(dessen)?|lieber|bevorzug\w+|verboten|erlaubt|ab (jetzt|sofort)|"
    r"vermeide\w*|h[oö]chstens|mindestens|sp[aä]testens|bis (zum|montag|freitag)|"
    r"nooit|altijd|moet\w*|niet|geen|alleen|liever|voortaan|uiterlijk|"
    r"aldrig|alltid|m[aå]ste|inte|ikke|alltid|"
    r"nigdy|zawsze|musi\w*|nie wolno|tylko|zamiast|prosz[eę]|"
    r"asla|her zaman|sadece|yerine|l[uü]tfen|gerek\w*|olmamal[iı]|yapma)\b"
    r"|никогда|всегда|нельзя|нужно|надо|должн|обязательно|только|не (трогай|используй|меняй|надо|"
    r"делай|пиши)|вместо|запрещ|предпочита|теперь|впредь|не позднее|максимум|ніколи|"
    r"завжди|треба"
    # Chinese, Japanese, Korean, Arabic, Hindi
    r"|不要|不得|不能|不可|别(再|用|动|碰|改)|必须|必需|务必|一定|只(能|用|要|准|许)|禁止|严禁|"
    r"记住|注意|切勿|从现在|以后|今后|改为|改用|改成|换成|而不是|优先|尽量|避免|最多|至少|之前|截止|"
    r"總是|必須|請|記住|總|勿"
    r"|ください|下さい|ないで|しないこと|必ず|絶対|禁止|べき|なければ|ねばなら|てはいけ|ではなく|"
    r"代わりに|今後|以内|までに|だけ|のみ|避けて|してほしい|にして"
    r"|하지 ?마|마세요|마십시오|말고|항상|반드시|절대|금지|대신|해야|앞으로|까지|만 사용"
    r"|لا ت|يجب|دائم|أبد|فقط|ممنوع|بدلا|من فضلك|الرجاء|लेकिन|हमेशा|कभी|ज़रूर|केवल|मत|चाहिए|कृपया",
    re.IGNORECASE,
)
_LASTING = (
    r"\b(never|always|must(n'?t)?|avoid|forbid\w*|prohibited|strictly|under no circumstances|"
    r"whatever you do|from now on|only .{1,40} (may|can|should)|every time|at all times|"
    r"nunca|siempre|jam[aá]s|jamais|toujours|il faut|mai|sempre|"
    r"niemals|nie|immer|darf|d[uü]rfen|keine?n?|ausschlie[sß]lich|nooit|altijd|aldri[gk]?|alltid|"
    r"nigdy|zawsze|asla|никогда|всегда|нельзя|должн\w+|обязательно|запрещ\w+)\b"
    r"|\A(do not|don'?t|no \w{4,}|не \w+(й|йте|и|ите)|n'\w+ (pas|jamais)|no \w+e?s|non \w+re)\b"
    r"|不要|不得|必须|必須|务必|禁止|严禁|绝不|切勿|绝对|绝|ないで|必ず|絶対|てはいけ|"
    r"절대|반드시|마세요|항상|لا ت|يجب|हमेशा"
)
# Said of all time, in the languages above: no wish of the moment.
LASTING = re.compile(_LASTING, re.IGNORECASE)
# The surest signs of a rule.
STRONG = re.compile(
    rf"{_LASTING}|\b(no longer|prefer|i'?d rather|(?<!\bi )(?<!n['’]t )(?<!not )remember|"
    r"(can['’]t|cannot) (stand|bear)|(won['’]t|can['’]t) have|"
    r"prefiero|pr[eé]f[eè]re|preferisco)\b|, not \w+",
    re.IGNORECASE,
)
# Who tells what he did or saw before that sign reports, and lays nothing down.
TELLING = re.compile(r"\b(i|ich|je|я)\b", re.IGNORECASE)
# Politeness goes with rules and with every other wish: alone it weighs less.
WISH = re.compile(
    r"\b(please|let'?s|(i|we)( would|'d)? (rather|prefer|like|want|need))\b"
    r"|por favor|bitte|per favore|s'il (te|vous) pla[iî]t|пожалуйста|请|お願い|주세요",
    re.IGNORECASE,
)
CORRECTION = re.compile(
    r"\b(actually|instead|no longer|any ?more|scratch that|correction|change of plans?|"
    r"changed my mind|on second thoughts?|forget (about|what|the|that)|rather than|not .{2,40} but|"
    r"switch\w* (to|over|from)|replac\w+|from now on|going forward|was wrong|i was mistaken|"
    r"turns out|revised?|update:|updated?|new (plan|value|deadline|limit|date|one)|"
    r"(moved|pushed|postponed|delayed|brought|bumped|raised|lowered|changed|renamed|shifted) "
    r"(it |this |that |them |the [\w ]{1,30})?(to|up|back|forward|from)|make (that|it)|misspoke|"
    r"after all|i meant|forget \S*[_\d/.]\S*|too (much|many|few|little|long|short)|"
    r"overrid\w+|supersed\w+|disregard|ignore what|now it'?s|is now|"
    r"en lugar de|en vez de|ya no|mejor|cambi\w+|plut[oô]t|finalement|au lieu de|ne .{2,30} plus|"
    r"doch|stattdessen|statt|nicht mehr|ge[aä]ndert|invece|non pi[uù]|em vez de|mudei)\b"
    r"|вместо|теперь|больше не|передумал|на самом деле|改为|改成|改用|换成|而不是|不再|更正|其实|"
    r"ではなく|代わりに|やっぱり|変更|訂正|대신|말고|변경",
    re.IGNORECASE,
)
# Weaker signs: they correct only what was said in the very same form.
NOW = re.compile(
    r"\A(no|nope|wait|sorry|correction|well)\b|\b(now|after all|make (that|it)|meant|misspoke|"
    r"mistake|today|nun|jetzt|doch|ahora|maintenant|adesso|agora|nu|teraz|şimdi|artık)\b"
    r"|теперь|сейчас|现在|今は|これから|이제",
    re.IGNORECASE,
)
# What stands before a name or value that is not to be, or not any more.
NEGATION = re.compile(
    r"\b(not|never|n['’]t|no longer|drop|forget|scrap|scratch|ditch|remove|instead of|rather than|"
    r"replac\w+|renamed? from|moved? from|switch\w* from|nicht( mehr)?|statt|kein\w*|no|ya no|"
    r"en (vez|lugar) de|olvida|pas|au lieu de|oublie\w*|non|invece di|n[aã]o|em vez de|niet|nie|"
    r"nunca|jamais|jam[aá]s|niemals|mai|nooit|nigdy|никогда)\b"
    r"|(?<=n)['’]t\b|не |вместо|забудь|不是|而不是|别|不要|ではなく|じゃなく|말고|아니라",
    re.IGNORECASE,
)
AGREEMENT = re.compile(
    r"(yes|yep|yeah|ok(ay)?|sure|thanks?|thank you|great|perfect|nope|hi|hello|hey|go ahead|"
    r"continue|proceed|done|sounds good|that['’]?s (right|all|correct|okay|fine|great)|you too|bye|"
    r"goodbye|take care|talk soon|(i )?understood|i understand|i see|got it|alright|cool|nice|no "
    r"(problem|worries)|you're welcome|have a|well done|good (job|work)|hm+|lol|ja|nein|danke|"
    r"s[ií]|gracias|oui|merci|d'accord|grazie|obrigad[oa]|да|спасибо|好的?|谢谢|はい|ありがとう|네|감사)"
    r"([\s,.!;:]|\Z)",
    re.IGNORECASE,
)
# What holds of all or of none is said once and meant always.
ALL_OR_NONE = re.compile(
    r"\b(nothing|nobody|none|no[- ]one|nowhere|neither|every\w*|all|each|"
    r"any(thing|one|body|where)?|both|else|entirely|at all|todo[s]?|todas?|nada|nadie|ning[uú]n\w*|"
    r"cada|toute?s?|tous|rien|personne|aucune?|chaque|alle[snrm]?|nichts|niemand|jede\w?|tutt[ioea]|niente|nessun\w*|ogni|"
    r"tudo|ningu[eé]m|nenhum\w*|alles|niets|niemand|elke?|allt|alla|ingen\w*|inget|wszystk\w+|nic|"
    r"nikt|ka[zż]d\w+|her|hi[cç]bir)\b"
    r"|\b(все[хмй]?|всё|кажд\w+|любо\w+|ничего|никто|никому|ни один)\b"
    r"|所有|全部|每|任何|一律|都|すべて|全て|毎|どの|一切|모든|모두|매번|아무|كل|جميع|सभी|हर",
    re.IGNORECASE,
)
# A quantity with its unit, a date, a weekday: limits and deadlines are made of these.
LIMIT = re.compile(
    r"\b\d[\d.,]{0,20}+\s?(%|percent|[kmg]i?b|ms|s|sec\w*|min\w*|h|hours?|days?|weeks?|"
    r"months?|years?|"
    r"characters?|chars?|lines?|words?|items?|rows?|times?|tries|attempts?|people|users?|requests?|"
    r"dollars?|euros?|usd|eur|pounds?|cents?|[€$£¥]|tage?n?|stunden?|wochen?|d[ií]as?|horas?|jours?|"
    r"heures?|giorni|дн\w+|час\w*|руб\w*)\b|[€$£¥]\s?\d"
    r"|\b((mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|"
    r"september|october|november|december|noon|midnight|montag|freitag|lunes|viernes|lundi|vendredi)"
    r"s?\b|(?<!\d)\d++\s?(个|小时|天|秒|分|元|円|日|時|件|文字|개|일|시간|분|원)",
    re.IGNORECASE,
)
# What somebody cannot do just now, unlike what he never does: "I can't do calls before noon".
_UNABLE = (
    r"i (really |just |also |actually |still )?(do(n['’]?t| not)|can['’]?t|cannot|can not) "
    r"(\w+ly )?(access|believe|care|find|get|have|know|locate|log|mean|need|provide|recall|"
    r"remember|say|see|seem|tell|think|understand|want)"
)
# How somebody is at the moment, unlike what he is: "I'm vegetarian".
_STATE = (
    r"i['’]m (\w+ing|a|afraid|also|able|done|fine|glad|happy|here|interested|just|not|okay|ready|"
    r"so|sorry|still|sure|the|very)"
)
# The business of the moment: what is asked for now, or told of oneself, holds until it is done.
ERRAND = re.compile(
    r"\A((hi|hello|hey)( there)?[,.! ]+|(oh|well|so|also|and|then|now|ok(ay)?|alright|great|thanks|"
    r"perfect|yes|yeah|sure)[,.! ]+)*"
    r"((can|could|would|will) (you|we|i)|(do|did|have|are) you|"
    r"i (\w+ly )?(would|want|need|have|had|am|was|will|do|did|didn['’]?t|can|could|think|"
    r"see|get|got|know|guess|hope|found|tried|noticed|understand|appreciate|apologi[sz]e|just|also|"
    r"still|never|mean|wonder|booked|must|choose|tested|ran)\b(?!['’]t)|i['’](ll|ve|d)\b|"
    rf"{_UNABLE}|{_STATE}|"
    r"(the |my )?reason\b|"
    r"my (\w+ )?(user|name|id|email|phone|reservation|booking|order|account|address|details|"
    r"flights?|date of birth|zip)|"
    r"let('s| me| us)|here('s| is| are)|it('s| is| was) |that('s| is| was|) |what|how|why|where|"
    r"which|is (it|this|that|there)|go ahead|go on|"
    r"(please )?(proceed|continue|go ahead|transfer|help)|look(s| like|ing)?|seems?|puedes|"
    r"podr[ií]as|quisiera|pouvez|peux|k[oö]nn(en|test|ten)|"
    r"kannst|potresti|poderia|можешь|можете)\b",
    re.IGNORECASE,
)
# Said of oneself these state no rule: "I don't have the number at hand", "I can't find it".
ABOUT_ONESELF = re.compile(
    r"\bi (really |just |also |actually |still )?(could ?n['’]?t|"
    r"did ?n['’]?t|must have|only|am not|need|have|had|think|thought|guess|hope|found|"
    r"apologi[sz]e|understand|appreciate|remember|see|was|got|know|noticed|tried|wonder)\b"
    rf"|\b({_UNABLE}|{_STATE})\b|\bi['’](ve|ll|d) "
    r"|\b(is|are|was|were|did|does|doesn'?t|didn'?t) (it|that|this|there)\b",
    re.IGNORECASE,
)
IMPERATIVE = re.compile(
    r"\A(use|make|keep|write|put|store|stick|ask|tell|wait|stop|leave|treat|check|test|follow|respect|"
    r"return|limit|stay|work|speak|answer|reply|respond|format|sign|log|hold|save|target|pin|mark|"
    r"no|all|any|every|everything|nothing|nobody|none|each|both|neither|when|if|whenever|once|after|"
    r"for|in|on|our|we|my|i am|i'm|the|it|they|you|your|usa|utilise[rz]?|verwende\w*|benutze\w*|"
    r"schreib\w*|используй\w*|пиши\w*)\b",
    re.IGNORECASE,
)
