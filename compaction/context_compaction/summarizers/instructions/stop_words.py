"""Words for topics.py, in many languages: those on no subject, and those that are values.

Like the patterns of patterns.py they only rank; nothing depends on their being complete.
"""

# What stands in rules and corrections on any subject, by groups of languages.
_STOP_WORDS = (
    # English
    "about above actually after again all already also always and another any anything "
    "anyone are around ask away because been before being below better between both but can "
    "cannot could did does doing don done down each either else even ever every everything "
    "everyone except few fine first for forget from get gets getting give given goes going "
    "got had happen has have having her here him his how instead into its just keep keeps "
    "kept last later least leave less let like little longer look lot made make makes making "
    "many may maybe mean might mind more most much must need needs never new next nobody "
    "none nor not nothing now off okay old once one only onto other our out over own per "
    "please prefer put rather really right said same say says see set shall she should since "
    "some something still stop such sure take taken takes tell than thank thanks that the "
    "their them then there these they thing things think this those though through too try "
    "two under unless until upon use used uses using via very wait want wants was way well "
    "were what when where which while who whole why will with within without won would yes "
    "yet you your yours cant dont "
    # German, Dutch
    "aber alle allem allen aller alles als also auch auf aus bei beim bin bis bitte brauche "
    "brauchen das dass dein dem den denn der des dich die dies diese diesem diesen dieser "
    "dir doch dort durch ein eine einem einen einer eines erst etwas für gibt haben hat hier "
    "ich ihr immer ist jede jeden jeder jetzt kann kein keine keinen können mehr mein mich "
    "mir mit muss müssen nach neue nicht nichts nie niemals noch nun nur oder ohne schon "
    "sehr sein sich sie sind soll sollen sondern statt und uns unser vom von vor war was "
    "weil wenn werden wie wieder will wir wird wurde zum zur zwei alleen altijd ben bij dat "
    "deze dit een geen gaat heb hebben het hoeft ik jij kan maar meer met mijn moet moeten "
    "naar niet nog nooit ook over uit van voor want wat wel wij worden wordt zijn zonder "
    # Romance languages
    "ahora algo alguien antes aquí así aunque bien cada como con contra creo cuando cuál "
    "debe deben del desde después donde dos ella ellos era eres esa ese eso esta estar este "
    "esto están está favor fue hace hacer hasta hay las los mejor mis mucho muy más nada "
    "nadie ningún ninguna no nos nosotros nuestra nuestro nunca otra otro para pero por "
    "porque puede pueden quiere quiero que qué quién sea ser será si siempre sin sobre solo "
    "somos son sus también tan tener tiene toda todas todo todos una uno unas unos usa usar "
    "usted vamos voy ya afin ailleurs alors après aucun aucune aussi autre aux avant avec "
    "avoir car ce ceci cela ces cet cette chaque chez comme dans depuis des dire doit "
    "doivent donc elle elles encore entre est être faire fait faites faut finalement ici ils "
    "jamais jusqu les leur leurs lui mais mes moi moins mon même ne notre nous ont par pas "
    "peut plus plutôt pour pourquoi quand quel quelle qui rien sans sera ses seulement sont "
    "sous sur tes toi ton toujours tous tout toute toutes très une vers veux voici vont vos "
    "votre vous abbiamo adesso alla alle altro anche ancora che chi col come così cosa dal "
    "dalla degli dei della delle deve devi devono dove ecco essere fare fatta fatto gli hai "
    "hanno invece mai meglio meno mio molto nei nel nella non nostra nostro ogni ora perché "
    "più poi prima può qua quale quando quello questa questo quindi sempre senza sia sono "
    "sopra sua sul sulla suo tra troppo tutta tutte tutti tutto vado voglio vorrei agora "
    "ainda apenas aqui até bem com das dela dele deles devem depois do ela ele eles em essa "
    "esse eu fazer ficar foi isso isto já mas me mesmo meu minha muito não nem nossa nosso "
    "num ou outra outro pela pelo pode precisa quem quero sem seu seus sim só também tem um "
    "uma vai você vou "
    # Russian, Polish, Turkish
    "без более будет будут быть вам вас весь вместо вот все всегда всего всех вы где говорит "
    "даже для должен должна должно должны его если есть еще ещё или именно как каждый какой "
    "когда который которые кто лучше меня мне может можно мой мы надо нам нас наш него "
    "нельзя нет никогда ничего но нужен нужна нужно обязательно один она они оно от очень "
    "пока после потом потому пожалуйста прошу при про раз сейчас себя сначала снова так "
    "также такой там теперь тебя тогда того тоже только три тут уже хочу чем через что чтобы "
    "эта эти это этого этот ale aby albo bardzo bez być będzie czy dla dlatego gdy gdzie ich "
    "ile jak jako jednak jego jej jest jeśli jeszcze już każdy która które który lub mam "
    "mnie może można musi nad nam nas nasz nie niech nigdy nim oraz pod ponieważ potem "
    "proszę przed przez przy się sobie tak także tam tego ten teraz też tylko tym więc "
    "wszystko zamiast zawsze żeby ama ben bir bize biz bunu daha değil gibi her hiç için "
    "kadar lütfen mi ne olarak olmalı olsun sadece sen siz şey şimdi var veya yok yap "
    # Arabic, Hindi
    "إلى أن أي إذا التي الذي بعد ثم جميع دائما على عن في فقط قبل كل لا لكن ليس ما مع من هذا "
    "هذه يجب يكون और एक कभी करना करें करो का की के केवल को कोई चाहिए जाना तक था थी थे नहीं "
    "पर भी मत में यह ये वह से हमेशा ही हूँ है हैं हो होना "
    # Pairs of Chinese and Japanese characters, beginnings of Korean words
    "一定 一律 不要 不得 不能 之前 之后 之後 以上 以下 以内 以前 以后 以後 今后 今後 任何 "
    "使用 优先 全て 全部 其实 別 务必 千万 只能 只要 可以 同时 大家 如果 尽量 应该 建议 开始 "
    "必ず 必要 必须 必須 总是 所有 提供 时候 時間 最好 最多 最少 每个 每天 每次 注意 然后 "
    "特别 现在 現在 绝对 絶対 禁止 统一 至少 要求 记住 请用 超过 避免 重要 附上 需要 首先 "
    "默认 그냥 그리 까지 나는 다시 대신 따라 때문 말고 말아 먼저 모두 모든 무조 바꿔 반드 "
    "부탁 사용 새로 앞으 어떤 여기 우리 이제 있는 있습 작성 절대 정말 제가 주세 지금 진행 "
    "하고 하는 하세 하지 한다 할게 합니 해야 해주 했습 항상 "
)
STOP_WORDS = frozenset(_STOP_WORDS.split())

_VALUE_WORDS = {
    "number": (
        "two three four five six seven eight nine ten eleven twelve fifteen eighteen twenty thirty "
        "forty fifty sixty ninety hundred hundreds thousand thousands million dozen twice half "
        "double single zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig hundert "
        "tausend dos tres cuatro cinco seis siete ocho nueve diez once doce quince veinte cien mil "
        "deux trois quatre cinq sept huit neuf dix onze douze quinze vingt trente cent mille due "
        "tre quattro cinque sei sette otto nove dieci dodici venti cento dois duas três quatro "
        "sete oito dez doze vinte два две двух три трёх трех четыре четырёх пять шесть семь восемь "
        "девять десять двадцать сто тысяч тысячи dwa dwie trzy cztery pięć sześć siedem osiem "
        "dziewięć dziesięć twee drie vijf zes zeven tien"
    ),
    "time": "noon midnight mittag mitternacht mediodía medianoche midi minuit",
    "day": (
        "monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays "
        "thursdays fridays saturdays sundays montag dienstag mittwoch donnerstag freitag samstag "
        "sonntag montags dienstags mittwochs donnerstags freitags samstags sonntags lunes martes "
        "miércoles jueves viernes sábado domingo lundi mardi mercredi jeudi vendredi samedi "
        "dimanche lundis mardis jeudis vendredis lunedì martedì mercoledì giovedì venerdì sabato "
        "domenica segunda terça quarta quinta sexta понедельник понедельника вторник вторника "
        "среда среду среды четверг четверга пятница пятницу пятницы суббота субботу воскресенье "
        "poniedziałek poniedziałku wtorek wtorku środa środę czwartek czwartku piątek piątku "
        "sobota sobotę niedziela niedzielę maandag dinsdag woensdag donderdag vrijdag zaterdag "
        "zondag pazartesi salı çarşamba perşembe cuma cumartesi pazar"
    ),
    "month": (
        "january february march april june july august september october november december "
        "januar februar märz juni juli oktober dezember enero febrero marzo abril mayo junio julio "
        "agosto septiembre octubre noviembre diciembre janvier février mars avril juin juillet "
        "août septembre octobre novembre décembre января февраля марта апреля мая июня июля "
        "августа сентября октября ноября декабря"
    ),
    "language": (
        "english american british german french spanish italian portuguese russian chinese "
        "japanese korean dutch polish englisch deutsch deutschen englischen französisch spanisch "
        "inglés español francés alemán anglais français allemand inglese italiano tedesco inglês "
        "português английском английский русском русский немецком angielsku polsku engels "
        "nederlands"
    ),
    "colour": (
        "red blue green yellow black white gray grey orange purple pink brown navy rot rote roten "
        "blau blaue blauen grün grüne grünen schwarz gelb rojo roja azul verde negro negra blanco "
        "blanca rouge bleu bleue vert verte noir blanc rosso nero bianco красный красная синий "
        "синяя зелёный зеленый чёрный белый"
    ),
}  # fmt: skip
# By word the kind of value that it is.
VALUE_KINDS = {word: kind for kind, words in _VALUE_WORDS.items() for word in words.split()}
